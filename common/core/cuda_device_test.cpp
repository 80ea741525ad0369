#include "common/core/cuda_device.hpp"

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

}  // namespace
}  // namespace ladder
