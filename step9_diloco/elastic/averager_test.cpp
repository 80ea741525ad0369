// Workers as threads of this process, with a lighthouse in it: the same code as between processes,
// where values can be looked at.
#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <mutex>
#include <thread>

#include "common/comm/contract/rank_values.hpp"
#include "common/core/check.hpp"
#include "common/core/compute_threads.hpp"
#include "common/core/stop_signal.hpp"
#include "common/core/timer.hpp"
#include "common/testing/expect_throws.hpp"
#include "common/testing/temp_folder.hpp"
#include "step9_diloco/elastic/elastic_averager.hpp"
#include "step9_diloco/elastic/testing/peer.hpp"
#include "step9_diloco/elastic/worker.hpp"

namespace ladder {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

// A worker's state.
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

// All of them take part; the times are those of a busy machine.
ElasticOptions group_of(int num_workers) {
  return {.num_workers = num_workers, .round_timeout_s = 30, .patience_s = 60};
}

constexpr double kJoinTimeout = 30;

// Each in a thread of its own, with a state of `numel` shared numbers, once it has joined.
// `min_workers`: 0 for all.
void run_workers(ElasticOptions options, int min_workers,
                 const std::function<void(int worker, Toy&, ElasticAverager&)>& work,
                 const Log& log = say_nothing, std::int64_t numel = 3,
                 double join_timeout_s = kJoinTimeout) {
  std::optional<CurveKeys> keys;
  if (!options.key_file.empty()) keys = read_curve_keys(options.key_file);
  const TestLighthouse lighthouse(min_workers == 0 ? options.num_workers : min_workers,
                                  join_timeout_s, keys);
  options.lighthouse = lighthouse.address();
  std::vector<std::thread> threads;
  for (options.worker = 0; options.worker < options.num_workers; ++options.worker) {
    threads.emplace_back([&, options] {
      set_compute_threads(1);
      const at::NoGradGuard no_grad;
      Toy toy = {.shared = at::zeros({numel})};
      ElasticAverager averager(options, log);
      averager.join(toy.state(), {{"--lr", "1"}});
      work(options.worker, toy, averager);
    });
  }
  for (std::thread& thread : threads) thread.join();
}

at::Tensor all(double value) {
  return at::full({3}, value, at::kFloat);
}

// What an average makes of these values, and of how many workers.
std::optional<int> average(ElasticAverager& averager, const at::Tensor& values) {
  averager.start(values);
  return averager.finish();
}

// The mean is, to the bit, that of adding up as a tree and dividing, at sizes that do not divide, are
// smaller than the number of workers, and are cut into several pieces, some as long as a message may
// be. With keys, too.
TEST(ElasticAverager, TheMeanIsTheSumOfATree) {
  const TempFolder folder;
  write_curve_keys(folder.path("key"));
  const auto check_mean = [](const ElasticOptions& options, std::int64_t numel) {
    const auto values_of = [numel](int worker) {
      return at::sin(at::arange(numel, at::kFloat) * (worker + 1)) * 1e3;
    };
    const int num_workers = options.num_workers;
    const at::Tensor wanted = wanted_tree(0, num_workers, values_of).div_(num_workers);
    const auto work = [&](int worker, Toy& toy, ElasticAverager& averager) {
      averager.form_quorum();
      const at::Tensor values = values_of(worker);
      EXPECT_EQ(average(averager, values), num_workers);
      EXPECT_TRUE(values.equal(wanted)) << num_workers << " workers, " << numel;
      // A worker's slice goes to and comes from each other one, and so do the other slices:
      // 2(n−1)/n of the values.
      const std::int64_t theory = 4 * 2 * (num_workers - 1) * numel / num_workers;
      EXPECT_NEAR(averager.counts().num_bytes_sent, theory, 72.0 * 2 * 4 * 4 + 4 * 2 * 4);
      ++toy.outer_steps;
      averager.end();
    };
    run_workers(options, 0, work, say_nothing, numel);
  };
  for (const int num_workers : {1, 2, 3, 4, 5})
    for (const std::int64_t numel : {1, 3, 1000, 600001}) check_mean(group_of(num_workers), numel);
  ElasticOptions with_keys = group_of(2);
  with_keys.key_file = folder.path("key");
  check_mean(with_keys, 600001);
}

// Worker 1 is behind: it gets the state of another one before the round, contributes nothing, and
// hears the average of the others.
TEST(ElasticAverager, WhoIsBehindHealsAndHearsTheAverage) {
  run_workers(group_of(3), 2, [](int worker, Toy& toy, ElasticAverager& averager) {
    toy.outer_steps = worker == 1 ? 4 : 7;
    toy.shared.fill_(worker == 1 ? 1 : 2);
    toy.own.fill_(10 * worker);
    averager.form_quorum();
    EXPECT_EQ(toy.outer_steps, 7);
    EXPECT_TRUE(toy.shared.equal(all(2)));
    const float own = toy.own[0].item<float>();
    EXPECT_TRUE(own == 10.0F * worker || (worker == 1 && (own == 0 || own == 20))) << own;
    EXPECT_NE(own, 10);
    const at::Tensor values = all(worker == 1 ? 1000 : worker);
    EXPECT_EQ(average(averager, values), 2);
    EXPECT_TRUE(values.equal(all(1)));  // (0 + 2) / 2
    EXPECT_EQ(averager.counts().num_heals, worker == 1 ? 1 : 0);
    averager.end();
  });
}

// Worker 0 has finished, and worker 1 has missed its last outer step: it gets it before they leave.
TEST(ElasticAverager, WhoHasFinishedHelpsThoseThatAreBehind) {
  run_workers(group_of(2), 0, [](int worker, Toy& toy, ElasticAverager& averager) {
    toy.outer_steps = worker == 0 ? 5 : 4;
    toy.own.fill_(worker == 0 ? 1 : 0);
    if (worker == 1) {
      EXPECT_FALSE(averager.form_quorum());  // nobody contributes any more
    }
    averager.end();
    EXPECT_EQ(toy.outer_steps, 5);
    EXPECT_TRUE(toy.own.equal(all(1)));
  });
}

// Worker 1's values are sick. It ends with an error, and the others go on without it.
TEST(ElasticAverager, ASickWorkerSpoilsNoSum) {
  ElasticOptions options = group_of(3);
  options.round_timeout_s = 1;
  run_workers(options, 2, [](int worker, Toy&, ElasticAverager& averager) {
    averager.form_quorum();
    EXPECT_EQ(averager.quorum().members.size(), 3U);
    const at::Tensor values = all(worker);
    if (worker == 1) {
      values[2] = std::nan("");
      expect_throws<CheckError>([&] { averager.start(values); },
                                {"a value of its pseudogradient is not finite"});
      return;
    }
    EXPECT_EQ(average(averager, values), std::nullopt);
    averager.form_quorum();
    values.fill_(worker);
    EXPECT_EQ(average(averager, values), 2);
    EXPECT_TRUE(values.equal(all(1)));
    averager.end();
  });
}

// Rounds of two workers whose values are finite, but not their sum. Each has a quorum, and fails:
// for --patience, and a few times at least. What a worker learns in a round that fails is lost, but
// not in the one at whose end it gives up: it stops, and goes on from it.
TEST(ElasticAverager, GivesUpWithoutACommittedRound) {
  const StopSignal stop;
  std::mutex mutex;
  std::string said;
  const auto log = [&](const std::string& message) {
    const std::lock_guard lock(mutex);
    said += message + "\n";
  };
  ElasticOptions options = group_of(2);
  options.patience_s = 0.3;
  const auto work = [](int /*worker*/, Toy&, ElasticAverager& averager) {
    const auto make_model = [] { return std::vector<Unit>{{"unit", {{"w", at::zeros({3})}}}}; };
    FlatModel model(make_model()), global(make_model());
    Diloco diloco(model, global, {}, averager);
    for (int round = 0; !averager.has_given_up() && round < 1000; ++round) {
      EXPECT_TRUE(model.params().equal(global.params())) << "a failed round is lost";
      model.params().fill_(-3e38);
      start_round(diloco, averager);  // unless the other one has asked both to stop
      EXPECT_FALSE(finish_round(diloco, averager));
    }
    EXPECT_TRUE(averager.has_given_up());
    EXPECT_EQ(model.params()[0].item<float>(), -3e38F);
    EXPECT_EQ(diloco.round().outer_steps, 0);
    EXPECT_FALSE(diloco.round().pseudogradient.defined());
    averager.end();
  };
  run_workers(options, 0, work, log, /*numel=*/3, /*join_timeout_s=*/0.2);
  EXPECT_TRUE(StopSignal::was_raised());
  EXPECT_THAT(said, AllOf(HasSubstr("votes against quorum 1: its sum is not finite"),
                          HasSubstr("gives up after 0.3 s without a committed round (--patience)"),
                          HasSubstr("ends without one committed round")));
}

}  // namespace
}  // namespace ladder
