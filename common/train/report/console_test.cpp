#include "common/train/report/console.hpp"

#include <gtest/gtest.h>

namespace ladder {
namespace {

TEST(Console, AProgressRowFitsAndLeavesOutWhatMattersLeast) {
  const StepRecord record = {.loss = 2.8589, .grad_norm = 0.693, .metrics = {{"documents", 10}}};
  const Progress progress = {1200, 100000, record, 1e-3, 12678, 0.161, 2014, "target tokens"};
  const std::string row =
      "step 1200/100000  33:34 left  loss 2.859  norm 0.69  lr 1.0e-03  12678 tok/s";
  EXPECT_EQ(progress_row(progress, 120), row + "  161 ms  documents 10");
  EXPECT_EQ(progress_row(progress, 80), row);
  EXPECT_EQ(progress_row(progress, 45), "step 1200/100000  33:34 left  loss 2.859");
  EXPECT_EQ(progress_row(progress, 8), "step 12");
  Progress known = progress;
  known.peak_bytes = 3 << 20;
  known.flops_per_second = 2.5e10;
  EXPECT_EQ(progress_row(known, 140), row + "  161 ms  documents 10  peak 3.0 MiB  0.025 TFLOP/s");
}

TEST(Console, DurationsReadWell) {
  EXPECT_EQ(format_duration(0.4), "0 s");
  EXPECT_EQ(format_duration(59), "59 s");
  EXPECT_EQ(format_duration(65), "1 min 05 s");
  EXPECT_EQ(format_duration(7800), "2 h 10 min");
}

}  // namespace
}  // namespace ladder
