#include "common/core/cuda_device.hpp"

#include <ATen/Context.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace ladder {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

TEST(CudaDevice, AProblemIsNamedExactlyWhereThereIsNoDevice) {
  EXPECT_EQ(cuda_problem().empty(), num_cuda_devices() > 0) << cuda_problem();
  EXPECT_THAT(cuda_problem(), Not(HasSubstr("\n")));
}

TEST(CudaDevice, ABuildWithoutCudaSaysSo) {
#ifdef LADDER_WITH_CUDA
  EXPECT_THAT(cuda_problem(), Not(HasSubstr("LADDER_CUDA")));
#else
  EXPECT_EQ(num_cuda_devices(), 0);
  EXPECT_THAT(cuda_problem(), HasSubstr("LADDER_CUDA is OFF"));
#endif
}

// The switches are libtorch's own, and a CPU can read them as well.
TEST(CudaDevice, DeterminismSetsEverySwitch) {
  using Reduction = at::CuBLASReductionOption;
  const at::Context& context = at::globalContext();
  for (const bool is_wanted : {true, false}) {
    set_deterministic(is_wanted);
    const Reduction reduction = is_wanted ? Reduction::DisallowReducedPrecisionAllowSplitK
                                          : Reduction::AllowReducedPrecisionWithSplitK;
    EXPECT_EQ(context.deterministicAlgorithms(), is_wanted);
    EXPECT_EQ(context.allowBF16ReductionCuBLAS(), reduction);
    EXPECT_EQ(context.allowFP16ReductionCuBLAS(), reduction);
  }
}

}  // namespace
}  // namespace ladder
