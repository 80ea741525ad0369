#include <gtest/gtest.h>

#include "common/core/check.hpp"
#include "common/testing/parse_options.hpp"
#include "common/testing/rank_test.hpp"
#include "common/testing/temp_folder.hpp"
#include "step9_diloco/diloco_options.hpp"
#include "step9_diloco/train.hpp"
#include "step9_diloco/wire_format.hpp"

namespace ladder {
namespace {

class DilocoCostCard : public RankTest {
 protected:
  // Rounds of 4 inner steps on two fragments. It saves every 3, also while an average is in
  // flight, but writes nothing.
  TrainOptions tiny_run(WireFormat wire, std::int64_t sync_delay) const {
    TrainOptions options;
    options.data.source = text_;
    options.step = "step9_diloco";
    options.num_steps = 12;
    options.model = {.context = 16, .layers = 1, .heads = 2, .channels = 20};
    options.data.microbatch_size = 1;
    options.data.num_microbatches = 1;
    options.set<DilocoOptions>() = {
        .sync_every = 8, .num_fragments = 2, .sync_delay = sync_delay, .wire = wire};
    options.output = {.save_every = 3, .is_quiet = true};
    finalize(options);
    return options;
  }

 private:
  TempFolder folder_;
  const std::string text_ = folder_.write("text.txt", std::string(4000, 'a'));
};

TEST_ON_RANKS(DilocoCostCard, ARunSendsWhatItSaysInEachFormat) {
  for (const WireFormat wire : kWireFormats) {
    for (const std::int64_t sync_delay : {0, 2}) {
      SCOPED_TRACE(concat("format ", static_cast<int>(wire), ", delay ", sync_delay));
      const TrainOptions options = tiny_run(wire, sync_delay);
      const TrainReport report = step9::train(options, test_world());
      EXPECT_EQ(report.losses.size(), 12U);
      EXPECT_EQ(report.traffic, step9::traffic(options, steps_of(report), size_, rank_));
    }
  }
}

// What a format saves, worker for worker: the scalars are doubles in any of them.
TEST_ON_RANKS(DilocoCostCard, FewerBitsAreFewerBytes) {
  if (size_ == 1) return;  // sends nothing in any format
  const auto sent = [&](WireFormat wire) {
    const TrainOptions options = tiny_run(wire, 0);
    return static_cast<double>(step9::traffic(options, {0, 4}, size_, rank_).bytes_sent());
  };
  const double exact = sent(WireFormat::kFp32);
  EXPECT_NEAR(sent(WireFormat::kBf16) / exact, 0.5, 0.02);
  EXPECT_NEAR(sent(WireFormat::kInt8) / exact, 0.25, 0.03);
}

TEST(DilocoOptions, AWireHasOneOfThreeFormats) {
  const auto wire = [](const std::vector<const char*>& words) {
    return parse_words(step9::trainer(), words).options.get<DilocoOptions>().wire;
  };
  EXPECT_EQ(wire({}), WireFormat::kFp32);
  EXPECT_EQ(wire({"--wire", "bf16"}), WireFormat::kBf16);
  EXPECT_EQ(wire({"--wire", "int8"}), WireFormat::kInt8);
  expect_refused(step9::trainer(), {"--wire", "fp8"},
                 {"--wire is 'fp8', it must be fp32 or bf16 or int8"});
}

}  // namespace
}  // namespace ladder
