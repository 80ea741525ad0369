// How this process gets memory from the kernel.
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

}  // namespace ladder
