#include "step4_bucketed_ddp/gradient_bucketer.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <thread>

#include "common/core/trace.hpp"
#include "common/testing/rank_test.hpp"
#include "step4_bucketed_ddp/exercise/bucketed_model.hpp"

namespace ladder {
namespace {

class GradientBucketerTest : public RankTest {};

// As on a GPU, where backward runs on a thread of autograd.
TEST_ON_RANKS(GradientBucketerTest, TracesTheBucketsThatAnotherThreadSends) {
  TraceLog log;
  const TraceScope scope(&log);
  step4::BucketedModel model(comm_);
  model.arm(1);
  std::thread([&] { model.backward(step4::kForward); }).join();
  model.wait();
  const auto is_bucket = [](const TracedSpan& span) { return std::string(span.name) == "bucket"; };
  EXPECT_EQ(std::count_if(log.spans().begin(), log.spans().end(), is_bucket),
            step4::BucketedModel::kNumBuckets);
}

}  // namespace
}  // namespace ladder
