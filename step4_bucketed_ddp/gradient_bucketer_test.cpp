#include "step4_bucketed_ddp/gradient_bucketer.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <thread>

#include "common/comm/self_communicator.hpp"
#include "common/core/trace.hpp"
#include "step4_bucketed_ddp/exercise/small_model.hpp"

namespace ladder {
namespace {

// As on a GPU, where backward runs on a thread of autograd.
TEST(GradientBucketer, TracesTheBucketsThatAnotherThreadSends) {
  TraceLog log;
  const TraceScope scope(&log);
  SelfCommunicator alone;
  step4::SmallModel model;
  GradientBucketer bucketer(model.grads, model.plan, alone);
  bucketer.arm(1);
  std::thread([&] { model.backward(step4::kForward); }).join();
  bucketer.wait();
  const auto is_bucket = [](const TracedSpan& span) { return std::string(span.name) == "bucket"; };
  EXPECT_EQ(std::count_if(log.spans().begin(), log.spans().end(), is_bucket),
            step4::SmallModel::kNumBuckets);
}

}  // namespace
}  // namespace ladder
