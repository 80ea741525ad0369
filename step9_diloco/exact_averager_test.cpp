#include "step9_diloco/exact_averager.hpp"

#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>

#include "common/comm/threads/run_as_threads.hpp"
#include "common/testing/closeness.hpp"
#include "common/testing/rank_test.hpp"

namespace ladder {
namespace {

class ExactAverages : public RankTest {
 protected:
  // On the ranks of this program, and on more threads than a quantum has room for without their number.
  void on_many_workers(const std::function<void(Communicator&)>& body) {
    body(comm_);
    if (rank_ != 0) return;
    for (const int num_workers : {5, 8}) run_as_threads(num_workers, body);
  }
};

// This worker's values averaged with those of all others.
template <class Kind>
at::Tensor mean_by(const at::Tensor& own, Communicator& comm) {
  const at::Tensor values = own.clone();
  Kind averager(comm);
  averager.start(values);
  EXPECT_EQ(averager.finish(), comm.size());
  return values;
}

// Magnitudes from 2^-20 to 2^20 next to each other, in each block another mix.
at::Tensor moves_of(int worker, std::int64_t numel) {
  const at::Tensor place = at::arange(numel, at::kDouble);
  const at::Tensor values =
      at::sin(place * (worker + 1.5) + worker) * at::exp2(at::cos(place / 900 + worker) * 20);
  values.slice(0, 1024, 2048).mul_(worker == 0 ? 1 : 0);  // only one worker has moved
  values.slice(0, 2048, 3072).sin_().square_().add_(1);   // the same way: large sums
  return values.to(at::kFloat);
}

TEST_ON_RANKS(ExactAverages, DoNotDependOnWhichRankIsWhichWorker) {
  on_many_workers([](Communicator& comm) {
    for (const std::int64_t numel : {1, 1023, 1024, 5000}) {
      bool has_order = false;
      const at::Tensor first = moves_of(comm.rank(), numel),
                       exact = mean_by<ExactAverager>(first, comm),
                       ordered = mean_by<GroupAverager>(first, comm);
      for (int place = 1; place < comm.size(); ++place) {
        const at::Tensor own = moves_of((comm.rank() + place) % comm.size(), numel);
        EXPECT_TRUE(bits_equal(mean_by<ExactAverager>(own, comm), exact)) << place;
        has_order = has_order || !mean_by<GroupAverager>(own, comm).equal(ordered);
      }
      if (numel == 5000) {
        EXPECT_EQ(has_order, comm.size() > 2);
      }
      EXPECT_TRUE(close_in_norm(exact, ordered, 1e-5));
    }
  });
}

// Each summand is off by half a quantum at most.
TEST_ON_RANKS(ExactAverages, AreThoseOfRoundedSummands) {
  on_many_workers([](Communicator& comm) {
    for (const float largest : {1e-30F, 1.0F, std::nextafter(4.0F, 0.0F), 1e30F}) {
      const at::Tensor own = at::linspace(-0.7, 1, 3000, at::kFloat) * largest;
      own.slice(0, 0, std::nullopt, 5).mul_(1.0F / static_cast<float>(1 + comm.rank()));
      const at::Tensor mean = mean_by<ExactAverager>(own, comm), sum = own.to(at::kDouble);
      comm.all_reduce(sum)->wait();
      const double quantum = largest * 2 * std::max(comm.size(), 4) * 0x1p-24;
      EXPECT_LE((mean - sum / comm.size()).abs().max().item<double>(), quantum);
    }
  });
}

TEST_ON_RANKS(ExactAverages, AWorkerThatHasDivergedIsSeenByAll) {
  for (const float value :
       {std::numeric_limits<float>::infinity(), std::numeric_limits<float>::quiet_NaN()}) {
    const at::Tensor own = moves_of(rank_, 3000);
    if (rank_ == size_ - 1) own[2999] = value;
    const at::Tensor mean = mean_by<ExactAverager>(own, comm_);
    EXPECT_TRUE(mean.slice(0, 2048).isnan().all().item<bool>());
    EXPECT_TRUE(mean.slice(0, 0, 2048).isfinite().all().item<bool>());
  }
}

}  // namespace
}  // namespace ladder
