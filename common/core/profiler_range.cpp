#include "common/core/profiler_range.hpp"

#ifdef LADDER_WITH_CUDA
#include <nvtx3/nvToolsExt.h>
#endif

namespace ladder {

#ifdef LADDER_WITH_CUDA
ProfilerRange::ProfilerRange(const char* name) {
  nvtxRangePushA(name);
}
ProfilerRange::~ProfilerRange() {
  nvtxRangePop();
}
#else
ProfilerRange::ProfilerRange(const char* /*name*/) {}
ProfilerRange::~ProfilerRange() = default;
#endif

}  // namespace ladder
