// How this process gets memory from the kernel, and how much of it is resident.
#pragma once

#include <cstdint>

namespace ladder {

// Freed memory stays with the process instead of going back to the kernel, which would hand it out
// again page by page and zeroed in every step. Call it once, first thing in main().
void keep_freed_memory();

// Asks for pages of 2 MiB instead of 4 KiB under a large buffer that has not been written yet. Ranks
// of one machine read each other's memory through the kernel, which goes page by page. A wish:
// nothing happens where the kernel has none to give.
void prefer_huge_pages(void* data, std::int64_t num_bytes);

// What the kernel says this process occupies: tensors, the heap's free memory, libraries, the
// transport's buffers. The memory ledger sees the tensors only.
struct ResidentMemory {
  std::int64_t bytes = 0;       // now (VmRSS)
  std::int64_t peak_bytes = 0;  // at most since the process started (VmHWM)
};
// Throws CheckError if /proc/self/status does not say.
ResidentMemory read_resident_memory();

}  // namespace ladder
