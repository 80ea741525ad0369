// The stub is the broken trainers as they are, below a comment; it compiles.
#include <gtest/gtest.h>

#include "step3_naive_dp/why_does_it_hang/trainers.hpp"

namespace ladder {
namespace {

TEST(Stub, HasSixTrainers) {
  for (const auto trainer : {hang::trainer_1, hang::trainer_2, hang::trainer_3, hang::trainer_4,
                             hang::trainer_5, hang::trainer_6})
    EXPECT_NE(trainer, nullptr);
}

}  // namespace
}  // namespace ladder
