#include "common/core/process_memory.hpp"

#include <malloc.h>
#include <sys/mman.h>

#include <fstream>
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
  return memory;
}

}  // namespace ladder
