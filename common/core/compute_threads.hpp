// How many threads compute what a thread asks for.
#pragma once

namespace ladder {

// For the calling thread, as at::set_num_threads(). To be called before the thread computes
// anything. libtorch leaves cos, exp, tanh and their like to MKL, which chooses its kernels in the
// first call. If several threads are the first at once, one of them sometimes takes another kernel,
// with other last bits: with four threads, in one process of 200. So one thread makes that call
// here, and the others wait for it.
void set_compute_threads(int num_threads);

}  // namespace ladder
