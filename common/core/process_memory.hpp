// How this process gets memory from the kernel, how much of it is resident, and how much it can get
// at most.
#pragma once

#include <cstdint>
#include <filesystem>

namespace ladder {

// Keeps freed memory in the heap, up to 4 MiB at a time: the kernel would hand it out again zeroed
// and page by page. Large tensors are kept_blocks.hpp's. Call it once, at the very start of main().
void keep_freed_memory();

// Asks the kernel for pages of 2 MiB instead of 4 KiB under a large buffer that has not been
// written yet: ranks on one machine read each other's memory through the kernel, which works page
// by page. This is only a hint and has no effect where the kernel has no such pages.
void prefer_huge_pages(void* data, std::int64_t num_bytes);

// The memory that this process occupies, according to the kernel: tensors, the heap's free memory,
// libraries, the transport's buffers. The memory ledger sees only the tensors.
struct ResidentMemory {
  std::int64_t bytes = 0;       // now (VmRSS)
  std::int64_t peak_bytes = 0;  // maximum since the process started (VmHWM)
};
// Throws CheckError if /proc/self/status does not report them.
ResidentMemory read_resident_memory();

// The bytes that so many processes on this machine, this one among them, can hold together: the
// machine's memory, or the limit of the cgroup (version 1 or 2) that they share or of one above it,
// if that is less, and swap; and no more than their address spaces (ulimit -v). What others hold at
// the moment does not count, because they may end: more than this can never work, less may still
// fail. `root` is the folder that has /proc and /sys.
std::int64_t memory_limit_bytes(int num_processes = 1, const std::filesystem::path& root = "/");

}  // namespace ladder
