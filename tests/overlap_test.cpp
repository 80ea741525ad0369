// Step 4 hides communication behind backward: in real time, on a link paced to be busy for about as
// long as backward runs.
//
// Machines are noisy, so a promise counts as kept if one of a few attempts keeps it. Every attempt
// also checks that its figures are meaningful: step 3, and step 4's own buckets started too late,
// must break the same promise.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>

#include "benchmarks/overlap_measurement.hpp"
#include "common/comm/paced_communicator.hpp"
#include "common/comm/traffic_theory.hpp"
#include "common/core/check.hpp"
#include "common/testing/rank_test.hpp"
#include "step4_bucketed_ddp/bucket_plan.hpp"

namespace ladder {
namespace {

constexpr std::int64_t kCapacityBytes = 64 << 10;
constexpr int kAttempts = 3;
constexpr int kRounds = 5;
constexpr double kSlack = 1.3;  // a busy machine may take this much longer than the bound
constexpr double kClearlyHidden = 0.5;
constexpr double kHardlyHidden = 0.25;

class Overlap : public ::testing::Test {
 protected:
  Overlap() : replica_({.layers = 4, .heads = 4, .channels = 128}, /*rows=*/8, comm()) {
    const std::vector<GradientBucket> plan = plan_buckets(replica_.flat.layout(), kCapacityBytes);
    last_bucket_share_ = static_cast<double>(plan.back().numel) / static_cast<double>(numel());
  }

  static Communicator& comm() { return test_world().comm(); }
  std::int64_t numel() const { return replica_.flat.layout().numel; }

  // A link that needs about the time of a backward to send all gradients.
  Link link_like_backward() {
    const OverlapFigures alone = measure_overlap(replica_, comm(), {naive_method()}, 3).front();
    const double backward_s = alone.compute_s - alone.forward_s;
    const Traffic sent = all_reduce_traffic(numel(), 4, comm().size(), /*rank=*/0);
    return {.gbit_per_s = 8e-9 * static_cast<double>(sent.bytes_sent()) / backward_s};
  }

  // 1.1 · the longer of backward and communication, plus what cannot overlap: the forward, and the
  // last bucket, which is ready when backward ends.
  double bound_s(const OverlapFigures& f) const {
    return f.forward_s + 1.1 * std::max(f.compute_s - f.forward_s, f.comm_s) +
           last_bucket_share_ * f.comm_s;
  }

  bool is_overlapped(const OverlapFigures& f) const {
    return f.step_s <= kSlack * bound_s(f) && f.overlap() >= kClearlyHidden;
  }
  bool is_not_overlapped(const OverlapFigures& f) const {
    return f.step_s > kSlack * bound_s(f) && f.overlap() <= kHardlyHidden;
  }

  void print(const OverlapFigures& f) const {
    if (comm().rank() > 0) return;
    std::printf(
        "%-30s T_compute %.1f (forward %.1f), T_comm %.1f, T_step %.1f ms, bound %.1f, "
        "overlap %.2f\n",
        f.name.c_str(), 1e3 * f.compute_s, 1e3 * f.forward_s, 1e3 * f.comm_s, 1e3 * f.step_s,
        1e3 * bound_s(f), f.overlap());
  }

  Replica replica_;
  double last_bucket_share_;
};

// All ranks have the same figures, so they agree on whether to retry.
TEST_F(Overlap, Step4HidesCommunicationAndStep3DoesNot) {
  const std::vector<Method> methods = {bucketed_method(kCapacityBytes), naive_method(),
                                       unoverlapped_method(kCapacityBytes)};
  bool step4 = false, step3 = false, too_late = false;
  for (int attempt = 0; attempt < kAttempts && !(step4 && step3 && too_late); ++attempt) {
    PacedCommunicator paced(comm().split(0, comm().rank()), link_like_backward());
    const std::vector<OverlapFigures> figures = measure_overlap(replica_, paced, methods, kRounds);
    for (const OverlapFigures& f : figures) print(f);
    step4 = is_overlapped(figures[0]);
    step3 = is_not_overlapped(figures[1]);
    too_late = is_not_overlapped(figures[2]);
  }
  EXPECT_TRUE(step4) << "step 4 hides too little of its communication";
  EXPECT_TRUE(step3) << "step 3 seems to hide communication, so these figures prove nothing";
  EXPECT_TRUE(too_late) << "buckets started in wait() seem hidden, so these figures prove nothing";
}

}  // namespace
}  // namespace ladder
