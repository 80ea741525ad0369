#pragma once

#define C10_CUDA_KERNEL_LAUNCH_CHECK() static_cast<void>(0)
