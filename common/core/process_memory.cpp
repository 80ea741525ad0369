#include "common/core/process_memory.hpp"

#include <malloc.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <limits>
#include <sstream>
#include <string>

#include "common/core/check.hpp"

namespace ladder {

void keep_freed_memory() {
  mallopt(M_MMAP_THRESHOLD, 4 << 20);
  mallopt(M_TRIM_THRESHOLD, -1);
  mallopt(M_TOP_PAD, 64 << 20);
}

void prefer_huge_pages(void* data, std::int64_t num_bytes) {
  constexpr std::uintptr_t kPage = 4096;
  const auto address = reinterpret_cast<std::uintptr_t>(data);
  const std::uintptr_t begin = (address + kPage - 1) / kPage * kPage;
  const std::uintptr_t end = (address + static_cast<std::uintptr_t>(num_bytes)) / kPage * kPage;
  if (end > begin) madvise(reinterpret_cast<void*>(begin), end - begin, MADV_HUGEPAGE);
}

ResidentMemory read_resident_memory() {
  std::ifstream status("/proc/self/status");
  ResidentMemory memory;
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with("VmRSS:")) memory.bytes = 1024 * std::stoll(line.substr(6));
    if (line.starts_with("VmHWM:")) memory.peak_bytes = 1024 * std::stoll(line.substr(6));
  }
  check(memory.bytes > 0 && memory.peak_bytes > 0,
        "/proc/self/status does not report VmRSS and VmHWM: is /proc mounted?");
  // The kernel counts on each processor and adds up late: its maximum may lack some pages.
  memory.peak_bytes = std::max(memory.peak_bytes, memory.bytes);
  return memory;
}

namespace {

namespace fs = std::filesystem;

constexpr std::int64_t kNoLimit = std::numeric_limits<std::int64_t>::max();

// "MemTotal:       24684084 kB"
std::int64_t bytes_in_meminfo(const fs::path& meminfo, const std::string& name, std::int64_t none) {
  std::ifstream file(meminfo);
  std::int64_t kib = 0;
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with(name) && std::istringstream(line.substr(name.size())) >> kib)
      return 1024 * kib;
  }
  return none;
}

// The number in a cgroup's file; "max", or no such file: no limit.
std::int64_t limit_in(const fs::path& file) {
  std::int64_t bytes = 0;
  return std::ifstream(file) >> bytes ? bytes : kNoLimit;
}

// The least limit of this cgroup and of those above it. In a container, `group` may be what the
// host calls it, and the container's own limit is in `mount`.
std::int64_t least_limit(const fs::path& mount, fs::path group, const char* file) {
  std::int64_t least = limit_in(mount / file);
  for (; group.has_relative_path(); group = group.parent_path())
    least = std::min(least, limit_in(mount / group.relative_path() / file));
  return least;
}

// Lines are "4:memory:/group" in version 1, and "0::/group" in version 2.
// Ranks that share a cgroup share its limit. One that has a cgroup of its own, other than its
// launcher's, shares only the limits of those above it.
std::int64_t cgroup_limit(const fs::path& root, int num_processes) {
  const auto text_of = [&](const std::string& process) {
    std::ostringstream text;
    text << std::ifstream(root / "proc" / process / "cgroup").rdbuf();
    return text.str();
  };
  std::istringstream file(text_of("self"));
  const std::string of_launcher = text_of(std::to_string(::getppid()));
  const bool is_shared = num_processes == 1 || of_launcher.empty() || of_launcher == file.str();
  const fs::path mount = root / "sys/fs/cgroup";
  std::int64_t least = kNoLimit;
  for (std::string line; std::getline(file, line);) {
    const std::size_t colon = line.find(':'), second = line.find(':', colon + 1);
    if (second == std::string::npos) continue;
    const std::string controllers = concat(",", line.substr(colon + 1, second - colon - 1), ",");
    fs::path group = line.substr(second + 1);
    if (!is_shared) group = group.parent_path();
    if (controllers == ",,") least = std::min(least, least_limit(mount, group, "memory.max"));
    if (controllers.find(",memory,") != std::string::npos)
      least = std::min(least, least_limit(mount / "memory", group, "memory.limit_in_bytes"));
  }
  return least;
}

}  // namespace

std::int64_t memory_limit_bytes(int num_processes, const fs::path& root) {
  const fs::path meminfo = root / "proc/meminfo";
  std::int64_t limit =
      std::min(bytes_in_meminfo(meminfo, "MemTotal:", kNoLimit), cgroup_limit(root, num_processes));
  if (limit < kNoLimit / 2) limit += bytes_in_meminfo(meminfo, "SwapTotal:", 0);
  rlimit address_space{};
  if (getrlimit(RLIMIT_AS, &address_space) == 0 && address_space.rlim_cur != RLIM_INFINITY) {
    std::int64_t all = 0;
    if (!__builtin_mul_overflow(address_space.rlim_cur, num_processes, &all))
      limit = std::min(limit, all);
  }
  return limit;
}

}  // namespace ladder
