// Workers as threads of this process, with a lighthouse in it: the same code as between processes,
// where values can be looked at.
#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cstring>
#include <thread>

#include "common/core/check.hpp"
#include "common/testing/temp_folder.hpp"
#include "step9_diloco/elastic/elastic_averager.hpp"
#include "step9_diloco/elastic/exchange.hpp"
#include "step9_diloco/elastic/lighthouse.hpp"

namespace ladder {
namespace {

using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

// A lighthouse that is polled by a thread.
class Beacon {
 public:
  explicit Beacon(Log log = say_nothing) : lighthouse_(0, false, std::move(log)) {
    thread_ = std::thread([this] {
      while (!has_ended_) {
        lighthouse_.poll();
        std::this_thread::sleep_for(std::chrono::milliseconds(2));
      }
    });
  }
  ~Beacon() {
    has_ended_ = true;
    thread_.join();
  }
  std::string address() const { return concat("127.0.0.1:", lighthouse_.port()); }

 private:
  Lighthouse lighthouse_;
  std::atomic<bool> has_ended_ = false;
  std::thread thread_;
};

// A worker's state: `shared` and `own` of three numbers each.
struct Toy {
  at::Tensor shared = at::zeros({3}), own = at::zeros({3});
  std::int64_t outer_steps = 0;

  WorkerState state() {
    return {.shared = {{"shared", shared}},
            .own = {{"own", own}},
            .outer_steps = [this] { return outer_steps; },
            .counters = [this] { return std::vector<std::int64_t>{outer_steps}; },
            .set_counters =
                [this](const std::vector<std::int64_t>& counters) { outer_steps = counters[0]; }};
  }
};

ElasticOptions options_of(const Beacon& beacon, int worker, int num_workers) {
  return {.lighthouse = beacon.address(),
          .worker = worker,
          .num_workers = num_workers,
          .min_workers = num_workers,
          .join_timeout_s = 5,
          .round_timeout_s = 5,
          .patience_s = 20};
}

void run_workers(int num_workers, const std::function<void(int worker)>& work) {
  std::vector<std::thread> threads;
  for (int worker = 0; worker < num_workers; ++worker) {
    threads.emplace_back([&, worker] {
      const at::NoGradGuard no_grad;
      work(worker);
    });
  }
  for (std::thread& thread : threads) thread.join();
}

at::Tensor values_of(int worker, std::int64_t numel) {
  return at::sin(at::arange(numel, at::kFloat) * (worker + 1)) * 1e3;
}

// To the bit the same as adding up in the order of the workers and dividing, at sizes that do not
// divide, are smaller than the number of workers, and are cut into several pieces.
TEST(ElasticAverager, TheMeanIsTheSumInTheOrderOfTheWorkers) {
  for (const int num_workers : {1, 2, 3, 4}) {
    for (const std::int64_t numel : {1, 3, 1000, 600001}) {
      at::Tensor wanted = values_of(0, numel);
      for (int worker = 1; worker < num_workers; ++worker) wanted += values_of(worker, numel);
      wanted /= num_workers;
      const Beacon beacon;
      run_workers(num_workers, [&](int worker) {
        Toy toy;
        toy.shared = at::zeros({numel});
        ElasticAverager averager(options_of(beacon, worker, num_workers), say_nothing);
        averager.join(toy.state(), "toy");
        averager.form_quorum();
        const at::Tensor values = values_of(worker, numel);
        averager.start(values);
        EXPECT_EQ(averager.finish(), num_workers);
        EXPECT_TRUE(values.equal(wanted)) << num_workers << " workers, " << numel;
        // Its slice from and to each other one, and the other slices: 2(n−1)/n of the values.
        const std::int64_t theory = 4 * 2 * (num_workers - 1) * numel / num_workers;
        EXPECT_NEAR(averager.counts().num_bytes_sent, theory, 72.0 * 2 * 4 * 4 + 4 * 2 * 4);
        ++toy.outer_steps;
        averager.end();
      });
    }
  }
}

TEST(ElasticAverager, MergesByTokens) {
  const Beacon beacon;
  run_workers(3, [&](int worker) {
    Toy toy;
    ElasticOptions options = options_of(beacon, worker, 3);
    options.merge = Merge::kTokens;
    ElasticAverager averager(options, say_nothing);
    averager.join(toy.state(), "toy");
    averager.note_step(worker == 2 ? 6 : 1);  // of 8
    averager.form_quorum();
    const at::Tensor values = at::full({3}, 8.0 * worker, at::kFloat);
    averager.start(values);
    EXPECT_EQ(averager.finish(), 3);
    EXPECT_TRUE(values.equal(at::full({3}, 0.0 + 1 + 12, at::kFloat)));
    averager.end();
  });
}

// Worker 1 is behind: it gets the state of another one before the round, contributes nothing, and
// hears the average of the others.
TEST(ElasticAverager, WhoIsBehindHealsAndHearsTheAverage) {
  const Beacon beacon;
  run_workers(3, [&](int worker) {
    Toy toy;
    toy.outer_steps = worker == 1 ? 4 : 7;
    toy.shared.fill_(worker == 1 ? 1 : 2);
    toy.own.fill_(10 * worker);
    ElasticAverager averager(options_of(beacon, worker, 3), say_nothing);
    averager.join(toy.state(), "toy");
    averager.form_quorum();
    EXPECT_EQ(toy.outer_steps, 7);
    EXPECT_TRUE(toy.shared.equal(at::full({3}, 2, at::kFloat)));
    const float own = toy.own[0].item<float>();
    if (worker == 1) {
      EXPECT_TRUE(own == 0 || own == 20) << own;
    } else {
      EXPECT_EQ(own, 10.0F * worker);
    }
    const at::Tensor values = at::full({3}, worker == 1 ? 1000 : worker, at::kFloat);
    averager.start(values);
    EXPECT_EQ(averager.finish(), 2);
    EXPECT_TRUE(values.equal(at::full({3}, 1, at::kFloat)));  // (0 + 2) / 2
    EXPECT_EQ(averager.counts().num_heals, worker == 1 ? 1 : 0);
    averager.end();
  });
}

// Worker 0 has finished, and worker 1 has missed its last outer step: it gets it before they leave.
TEST(ElasticAverager, WhoHasFinishedHelpsThoseThatAreBehind) {
  const Beacon beacon;
  run_workers(2, [&](int worker) {
    Toy toy;
    toy.outer_steps = worker == 0 ? 5 : 4;
    toy.own.fill_(worker == 0 ? 1 : 0);
    ElasticAverager averager(options_of(beacon, worker, 2), say_nothing);
    averager.join(toy.state(), "toy");
    if (worker == 1) {
      averager.form_quorum();
      averager.start(at::zeros({3}));
      EXPECT_EQ(averager.finish(), std::nullopt);  // nobody contributes any more
    }
    averager.end();
    EXPECT_EQ(toy.outer_steps, 5);
    EXPECT_TRUE(toy.own.equal(at::ones({3})));
  });
}

// The donor trains on at once, while its snapshot is served: who heals gets none of that.
TEST(ElasticAverager, TheDonorsTrainingDoesNotTearTheSnapshot) {
  const Beacon beacon;
  const std::int64_t numel = 2'000'000;
  run_workers(2, [&](int worker) {
    Toy toy;
    toy.own = at::full({numel}, worker == 0 ? 5 : 0, at::kFloat);
    toy.outer_steps = worker == 0 ? 3 : 0;
    ElasticAverager averager(options_of(beacon, worker, 2), say_nothing);
    averager.join(toy.state(), "toy");
    averager.form_quorum();
    if (worker == 0) {
      for (int step = 0; step < 50; ++step) toy.own.add_(1);
    } else {
      EXPECT_TRUE(toy.own.equal(at::full({numel}, 5, at::kFloat)));
    }
    averager.start(at::zeros({3}));
    averager.finish();
    averager.end();
  });
}

TEST(ElasticAverager, WorksWithKeys) {
  const TempFolder folder;
  write_curve_keys(folder.path("key"));
  const Beacon beacon;
  run_workers(2, [&](int worker) {
    Toy toy;
    ElasticOptions options = options_of(beacon, worker, 2);
    options.key_file = folder.path("key");
    ElasticAverager averager(options, say_nothing);
    averager.join(toy.state(), "toy");
    averager.form_quorum();
    const at::Tensor values = at::full({3}, worker, at::kFloat);
    averager.start(values);
    EXPECT_EQ(averager.finish(), 2);
    EXPECT_TRUE(values.equal(at::full({3}, 0.5, at::kFloat)));
    averager.end();
  });
}

TEST(ElasticAverager, GivesUpWithoutAQuorum) {
  const Beacon beacon;
  ElasticOptions options = options_of(beacon, 0, 2);
  options.patience_s = 0.3;
  Toy toy;
  ElasticAverager averager(options, say_nothing);
  averager.join(toy.state(), "toy");
  EXPECT_THAT([&] { averager.form_quorum(); },
              ThrowsMessage<CheckError>(HasSubstr("has found no quorum for 0.3 s (--patience)")));
}

TEST(Snapshot, IsAdoptedOnlyIfItIsRight) {
  Toy donor, other;
  donor.shared.fill_(1);
  donor.own.fill_(2);
  donor.outer_steps = 3;
  Parcel snapshot = take_snapshot(donor.state());
  donor.own.fill_(9);  // it trains on
  for (std::int64_t byte = 0; byte < snapshot.num_bytes; ++byte) {
    snapshot.bytes[static_cast<std::size_t>(byte)] ^= 1;
    EXPECT_FALSE(adopt_snapshot(snapshot, other.state())) << byte;
    snapshot.bytes[static_cast<std::size_t>(byte)] ^= 1;
  }
  EXPECT_EQ(other.outer_steps, 0);
  EXPECT_TRUE(other.own.equal(at::zeros({3})));
  ASSERT_TRUE(adopt_snapshot(snapshot, other.state()));
  EXPECT_EQ(other.outer_steps, 3);
  EXPECT_TRUE(other.shared.equal(at::full({3}, 1, at::kFloat)));
  EXPECT_TRUE(other.own.equal(at::full({3}, 2, at::kFloat)));
  Toy larger;
  larger.own = at::zeros({4});
  EXPECT_FALSE(adopt_snapshot(snapshot, larger.state()));
}

TEST(Exchange, SlicesCoverTheValues) {
  for (const std::int64_t numel : {0, 1, 2, 7, 100}) {
    for (std::size_t n = 1; n <= 5; ++n) {
      std::int64_t end = 0;
      for (std::size_t i = 0; i < n; ++i) {
        EXPECT_EQ(slice_of(numel, i, n).start, end);
        end += slice_of(numel, i, n).numel;
      }
      EXPECT_EQ(end, numel);
    }
  }
}

}  // namespace
}  // namespace ladder
