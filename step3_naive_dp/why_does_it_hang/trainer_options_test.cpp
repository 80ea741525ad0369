#include "step3_naive_dp/why_does_it_hang/trainer_options.hpp"

#include "common/testing/parse_options.hpp"
#include "step3_naive_dp/why_does_it_hang/train.hpp"

namespace ladder {
namespace {

TEST(HangOptions, NameOneOfSixTrainers) {
  const Trainer trainer = hang::trainer();
  EXPECT_EQ(parse_words(trainer, {"--trainer", "6"}).options.get<HangOptions>().trainer, 6);
  expect_refused(trainer, {"--trainer", "7"}, {"--trainer is 7"});
  expect_refused(trainer, {"--trainer", "0"}, {"--trainer is 0"});
}

}  // namespace
}  // namespace ladder
