// Marks a function that kernels call as well: LADDER_HOST_DEVICE float half(float x).
#pragma once

#ifdef __CUDACC__
#define LADDER_HOST_DEVICE __host__ __device__
#else
#define LADDER_HOST_DEVICE
#endif
