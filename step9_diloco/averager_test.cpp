// The averages of a group: compressed, exact, and as the group's own all-reduce makes them.
#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>

#include "common/comm/contract/rank_values.hpp"
#include "common/comm/threads/run_as_threads.hpp"
#include "common/comm/traffic_theory.hpp"
#include "common/core/timer.hpp"
#include "common/testing/closeness.hpp"
#include "common/testing/rank_test.hpp"
#include "step9_diloco/compressed_averager.hpp"
#include "step9_diloco/cost_card.hpp"
#include "step9_diloco/exact_averager.hpp"

namespace ladder {
namespace {

constexpr float kNotFinite[] = {std::numeric_limits<float>::infinity(),
                                std::numeric_limits<float>::quiet_NaN()};

// This worker's values averaged with those of all others.
at::Tensor averaged(const at::Tensor& own, Averager& averager, const Communicator& comm) {
  const at::Tensor values = own.clone();
  averager.start(values);
  EXPECT_EQ(averager.finish(), comm.size());
  return values;
}
template <class Kind>
at::Tensor averaged(const at::Tensor& own, Communicator& comm) {
  Kind averager(comm);
  return averaged(own, averager, comm);
}

// ---- Compressed ---------------------------------------------------------------------------------

// Fewer values than workers, none divisible, slices of a block and a little more.
constexpr std::int64_t kSizes[] = {0, 1, 2, 3, 5, 64, 255, 257, 1027, 3001};

// Runs on 1 to 4 threads, and on the ranks of this program, where a send waits for its receiver.
void everywhere(const std::function<void(Communicator&)>& body) {
  World world = synchronous_world();
  body(world.comm());
  if (world.comm().rank() != 0) return;
  for (int num_workers = 1; num_workers <= 4; ++num_workers) run_as_threads(num_workers, body);
}
class CompressedAverages : public RankTest {};

at::Tensor worker_values(int worker, std::int64_t numel) {
  const at::Tensor place = at::arange(numel, at::kDouble);
  return (at::sin(place * (worker + 1.5) + worker) * at::exp(at::cos(place / 9) * 3))
      .to(at::kFloat);
}

at::Tensor averaged(const at::Tensor& own, WireFormat format, Communicator& comm) {
  CompressedAverager averager(comm, format);
  return averaged(own, averager, comm);
}

void expect_equal_everywhere(const at::Tensor& values, Communicator& comm) {
  const at::Tensor all = at::empty({comm.size() * values.numel()});
  comm.all_gather(values.contiguous(), all)->wait();
  const at::Tensor bits = all.view({comm.size(), values.numel()}).view(at::kInt);
  EXPECT_TRUE(bits.eq(bits[0]).all().item<bool>()) << values.numel() << " values";
}

at::Tensor round_trip(const at::Tensor& values, WireFormat format) {
  const at::Tensor result = at::empty_like(values);
  decode(encode(values, format), format, result);
  return result;
}

// One slice after the other, straight from the definition.
at::Tensor mean_by_definition(std::int64_t numel, WireFormat format, int num_workers) {
  const at::Tensor result = at::empty({numel});
  for (std::int64_t slice = 0, start = 0; slice < num_workers; ++slice) {
    const std::int64_t length = numel / num_workers + (slice < numel % num_workers ? 1 : 0);
    const auto piece = [&](int worker) {
      return round_trip(worker_values(worker, numel).slice(0, start, start + length), format);
    };
    const at::Tensor mean = wanted_tree(0, num_workers, piece) / num_workers;
    result.slice(0, start, start + length).copy_(round_trip(mean, format));
    start += length;
  }
  return result;
}

TEST_ON_RANKS(CompressedAverages, EqualTheDefinitionAndInFp32TheGroups) {
  everywhere([](Communicator& comm) {
    for (const WireFormat format : kWireFormats) {
      for (const std::int64_t numel : kSizes) {
        const at::Tensor mean = averaged(worker_values(comm.rank(), numel), format, comm);
        EXPECT_TRUE(mean.equal(mean_by_definition(numel, format, comm.size()))) << numel;
        expect_equal_everywhere(mean, comm);
        if (format != WireFormat::kFp32) continue;
        EXPECT_TRUE(mean.equal(averaged<GroupAverager>(worker_values(comm.rank(), numel), comm)));
      }
    }
  });
}

// Nobody else comes before worker 0 is back from start().
TEST_ON_RANKS(CompressedAverages, StartWaitsForNobody) {
  everywhere([](Communicator& comm) {
    for (const WireFormat format : kWireFormats) {
      CompressedAverager averager(comm, format);
      const at::Tensor values = worker_values(comm.rank(), 1027);
      if (comm.rank() == 0) averager.start(values);
      comm.barrier();
      if (comm.rank() != 0) averager.start(values);
      EXPECT_EQ(averager.finish(), comm.size());
      EXPECT_TRUE(values.equal(mean_by_definition(1027, format, comm.size())));
    }
  });
}

TEST_ON_RANKS(CompressedAverages, AWorkerThatHasDivergedIsSeenByAll) {
  everywhere([](Communicator& comm) {
    for (const WireFormat format : kWireFormats) {
      for (const float value : kNotFinite) {
        for (const std::int64_t place : {0, 511, 1026}) {
          const at::Tensor own = worker_values(comm.rank(), 1027);
          if (comm.rank() == comm.size() - 1) own[place] = value;
          const at::Tensor mean = averaged(own, format, comm);
          EXPECT_FALSE(std::isfinite(mean[place].item<float>())) << place;
        }
      }
    }
  });
}

// Polls until this rank has sent `bytes` through `comm`, or gives up.
void poll_until_sent(Averager& averager, Communicator& comm, std::int64_t bytes) {
  const Timer timer;
  while (comm.traffic().bytes_sent() < bytes && timer.seconds() < 20) averager.poll();
}

// Both halves of an average leave before anybody calls finish(). The messages are far above MPI's
// eager limit. (For threads the all-reduce is one step, and only the compressed average has two
// halves.)
TEST_ON_RANKS(CompressedAverages, PollsMoveBothHalvesOfAnAverage) {
  constexpr std::int64_t kNumel = 1 << 20;
  World world = synchronous_world();
  Communicator& comm = world.comm();
  const auto expect_sent_by_polls = [&](Averager& averager, const Traffic& wanted) {
    const at::Tensor values = at::full({kNumel}, rank_ + 1.0F);
    const std::int64_t before = comm.traffic().bytes_sent();
    averager.poll();  // nothing is in flight
    averager.start(values);
    poll_until_sent(averager, comm, before + wanted.bytes_sent());
    EXPECT_EQ(comm.traffic().bytes_sent() - before, wanted.bytes_sent());
    averager.finish();
    EXPECT_TRUE(values.eq((size_ + 1) / 2.0F).all().item<bool>());
  };
  GroupAverager group(comm);
  expect_sent_by_polls(group, all_reduce_traffic(kNumel, 4, size_, rank_));
  CompressedAverager compressed(comm, WireFormat::kBf16);
  expect_sent_by_polls(
      compressed,
      traffic_of(compressed_average_sends(kNumel, WireFormat::kBf16, size_, rank_), rank_));
}

// Workers come to the second half at different times, and use the group for other things meanwhile.
TEST_ON_RANKS(CompressedAverages, WorkersPollAtTimesOfTheirOwn) {
  CompressedAverager averager(comm_, WireFormat::kFp32);
  for (int round = 0; round < 8; ++round) {
    const at::Tensor values = at::full({1027}, rank_ + 1.0F);
    averager.start(values);
    comm_.barrier();
    for (int i = 0; i < (rank_ + round) % 4; ++i) averager.poll();
    EXPECT_EQ(all_reduce_sum(1, comm_), size_);
    averager.poll();
    averager.finish();
    EXPECT_TRUE(values.eq((size_ + 1) / 2.0F).all().item<bool>());
  }
}

// ---- Exact --------------------------------------------------------------------------------------

class ExactAverages : public RankTest {
 protected:
  // Runs on the ranks of this program, and on more threads than a quantum has room for without
  // their number.
  void on_many_workers(const std::function<void(Communicator&)>& body) {
    body(comm_);
    if (rank_ != 0) return;
    for (const int num_workers : {5, 8}) run_as_threads(num_workers, body);
  }
};

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
                       exact = averaged<ExactAverager>(first, comm),
                       ordered = averaged<GroupAverager>(first, comm);
      for (int place = 1; place < comm.size(); ++place) {
        const at::Tensor own = moves_of((comm.rank() + place) % comm.size(), numel);
        EXPECT_TRUE(bits_equal(averaged<ExactAverager>(own, comm), exact)) << place;
        has_order = has_order || !averaged<GroupAverager>(own, comm).equal(ordered);
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
      const at::Tensor mean = averaged<ExactAverager>(own, comm), sum = own.to(at::kDouble);
      comm.all_reduce(sum)->wait();
      const double quantum = largest * 2 * std::max(comm.size(), 4) * 0x1p-24;
      EXPECT_LE((mean - sum / comm.size()).abs().max().item<double>(), quantum);
    }
  });
}

TEST_ON_RANKS(ExactAverages, AWorkerThatHasDivergedIsSeenByAll) {
  for (const float value : kNotFinite) {
    const at::Tensor own = moves_of(rank_, 3000);
    if (rank_ == size_ - 1) own[2999] = value;
    const at::Tensor mean = averaged<ExactAverager>(own, comm_);
    EXPECT_TRUE(mean.slice(0, 2048).isnan().all().item<bool>());
    EXPECT_TRUE(mean.slice(0, 0, 2048).isfinite().all().item<bool>());
  }
}

}  // namespace
}  // namespace ladder
