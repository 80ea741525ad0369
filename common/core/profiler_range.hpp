// A named range on the time line that a profiler draws: from here to the end of the scope, on this
// thread. NVTX ranges, which Nsight Systems shows above the GPU's kernels; nothing in a build
// without CUDA, and a few nanoseconds where no profiler is attached.
#pragma once

namespace ladder {

class ProfilerRange {
 public:
  explicit ProfilerRange(const char* name);
  ~ProfilerRange();
  ProfilerRange(const ProfilerRange&) = delete;
  ProfilerRange& operator=(const ProfilerRange&) = delete;
};

}  // namespace ladder
