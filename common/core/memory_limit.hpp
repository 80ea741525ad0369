// How much memory a process can get at most.
#pragma once

#include <cstdint>
#include <filesystem>

namespace ladder {

// The bytes that so many processes on this machine, this one among them, can hold together: the
// machine's memory, or the limit of the cgroup (version 1 or 2) that they share or of one above it,
// if that is less, and swap; and no more than their address spaces (ulimit -v). What others hold at
// the moment does not count, because they may end: more than this can never work, less may still
// fail. `root` is the folder that has /proc and /sys.
std::int64_t memory_limit_bytes(int num_processes = 1, const std::filesystem::path& root = "/");

}  // namespace ladder
