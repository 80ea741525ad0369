// How this process deals with memory that it has freed.
#pragma once

namespace ladder {

// Freed memory stays with the process instead of going back to the kernel, which would hand it out
// again page by page and zeroed in every step. Call it once, first thing in main().
void keep_freed_memory();

}  // namespace ladder
