// Workers as threads of this process, with a lighthouse in it: the same code as between processes,
// where values can be looked at.
#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <mutex>
#include <thread>

#include "common/core/check.hpp"
#include "common/core/compute_threads.hpp"
#include "common/core/timer.hpp"
#include "common/testing/temp_folder.hpp"
#include "common/train/stop_signal.hpp"
#include "step9_diloco/elastic/elastic_averager.hpp"
#include "step9_diloco/elastic/peer.hpp"
#include "step9_diloco/elastic/worker.hpp"

namespace ladder {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

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

ElasticOptions options_of(const TestLighthouse& lighthouse, int worker, int num_workers) {
  return {.lighthouse = lighthouse.address(),
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
      set_compute_threads(1);
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
// divide, are smaller than the number of workers, and are cut into several pieces, some as long as
// a message may be. With keys, too.
TEST(ElasticAverager, TheMeanIsTheSumInTheOrderOfTheWorkers) {
  const TempFolder folder;
  write_curve_keys(folder.path("key"));
  const auto check_mean = [&](int num_workers, std::int64_t numel, bool has_keys) {
    at::Tensor wanted = values_of(0, numel);
    for (int worker = 1; worker < num_workers; ++worker) wanted += values_of(worker, numel);
    wanted /= num_workers;
    std::optional<CurveKeys> keys;
    if (has_keys) keys = read_curve_keys(folder.path("key"));
    const TestLighthouse lighthouse(keys);
    run_workers(num_workers, [&](int worker) {
      Toy toy;
      toy.shared = at::zeros({numel});
      ElasticOptions options = options_of(lighthouse, worker, num_workers);
      options.join_timeout_s = options.round_timeout_s = 30;  // on a busy machine
      options.patience_s = 60;
      if (has_keys) options.key_file = folder.path("key");
      ElasticAverager averager(options, say_nothing);
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
  };
  for (const int num_workers : {1, 2, 3, 4})
    for (const std::int64_t numel : {1, 3, 1000, 600001})
      check_mean(num_workers, numel, /*has_keys=*/false);
  check_mean(2, 600001, /*has_keys=*/true);
}

TEST(ElasticAverager, MergesByTokens) {
  const TestLighthouse lighthouse;
  const Timer timer;
  run_workers(3, [&](int worker) {
    Toy toy;
    ElasticOptions options = options_of(lighthouse, worker, 3);
    options.merge = Merge::kTokens;
    ElasticAverager averager(options, say_nothing);
    averager.join(toy.state(), "toy");
    averager.note_step(worker == 2 ? 6 : worker);  // of 8: none counts as one
    averager.form_quorum();
    const at::Tensor values = at::full({3}, 8.0 * worker, at::kFloat);
    averager.start(values);
    EXPECT_EQ(averager.finish(), 3);
    EXPECT_TRUE(values.equal(at::full({3}, 0.0 + 1 + 12, at::kFloat)));
    averager.end();
  });
  EXPECT_LT(timer.seconds(),
            5);  // nobody waits for the others in vain: at the end, no tokens are left
}

// Worker 1 is behind: it gets the state of another one before the round, contributes nothing, and
// hears the average of the others.
TEST(ElasticAverager, WhoIsBehindHealsAndHearsTheAverage) {
  const TestLighthouse lighthouse;
  run_workers(3, [&](int worker) {
    Toy toy;
    toy.outer_steps = worker == 1 ? 4 : 7;
    toy.shared.fill_(worker == 1 ? 1 : 2);
    toy.own.fill_(10 * worker);
    ElasticOptions options = options_of(lighthouse, worker, 3);
    options.min_workers = 2;
    ElasticAverager averager(options, say_nothing);
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
  const TestLighthouse lighthouse;
  run_workers(2, [&](int worker) {
    Toy toy;
    toy.outer_steps = worker == 0 ? 5 : 4;
    toy.own.fill_(worker == 0 ? 1 : 0);
    ElasticAverager averager(options_of(lighthouse, worker, 2), say_nothing);
    averager.join(toy.state(), "toy");
    if (worker == 1) {
      EXPECT_FALSE(averager.form_quorum());  // nobody contributes any more
    }
    averager.end();
    EXPECT_EQ(toy.outer_steps, 5);
    EXPECT_TRUE(toy.own.equal(at::ones({3})));
  });
}

// The donor trains on at once, while its snapshot is served: who heals gets none of that.
TEST(ElasticAverager, TheDonorsTrainingDoesNotTearTheSnapshot) {
  const TestLighthouse lighthouse;
  const std::int64_t numel = 2'000'000;
  run_workers(2, [&](int worker) {
    Toy toy;
    toy.own = at::full({numel}, worker == 0 ? 5 : 0, at::kFloat);
    toy.outer_steps = worker == 0 ? 3 : 0;
    ElasticOptions options = options_of(lighthouse, worker, 2);
    options.min_workers = 1;
    ElasticAverager averager(options, say_nothing);
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

// Worker 1's values are sick. It ends with an error, and the others go on without it.
TEST(ElasticAverager, ASickWorkerSpoilsNoSum) {
  const TestLighthouse lighthouse;
  run_workers(3, [&](int worker) {
    Toy toy;
    ElasticOptions options = options_of(lighthouse, worker, 3);
    options.min_workers = 2;
    options.round_timeout_s = 1;
    ElasticAverager averager(options, say_nothing);
    averager.join(toy.state(), "toy");
    averager.form_quorum();
    EXPECT_EQ(averager.quorum().members.size(), 3U);
    const at::Tensor values = at::full({3}, worker, at::kFloat);
    if (worker == 1) {
      values[2] = std::nan("");
      EXPECT_THAT(
          [&] { averager.start(values); },
          ThrowsMessage<CheckError>(HasSubstr("a value of its pseudogradient is not finite")));
      return;
    }
    averager.start(values);
    EXPECT_EQ(averager.finish(), std::nullopt);
    averager.form_quorum();
    values.fill_(worker);
    averager.start(values);
    EXPECT_EQ(averager.finish(), 2);
    EXPECT_TRUE(values.equal(at::full({3}, 1, at::kFloat)));
    averager.end();
  });
}

// Each round has a quorum, and fails: for --patience, and a few times at least.
TEST(ElasticAverager, GivesUpWithoutACommittedRound) {
  const StopSignal stop;
  const TestLighthouse lighthouse;
  std::mutex mutex;
  std::string said;
  run_workers(2, [&](int worker) {
    ElasticOptions options = options_of(lighthouse, worker, 2);
    options.join_timeout_s = 0.2;
    options.patience_s = 0.3;
    Toy toy;
    ElasticAverager averager(options, [&](const std::string& message) {
      const std::lock_guard lock(mutex);
      said += message + "\n";
    });
    averager.join(toy.state(), "toy");
    for (int round = 0; !averager.has_given_up() && round < 1000; ++round) {
      if (!averager.form_quorum()) break;  // the other one has asked both to stop
      averager.start(at::full({3}, 3e38, at::kFloat));
      EXPECT_EQ(averager.finish(), std::nullopt);
    }
    EXPECT_TRUE(averager.has_given_up());
    averager.end();
  });
  EXPECT_TRUE(StopSignal::was_raised());
  EXPECT_THAT(said, AllOf(HasSubstr("votes against quorum 1: its sum is not finite"),
                          HasSubstr("gives up after 0.3 s without a committed round (--patience)"),
                          HasSubstr("ends without one committed round")));
}

// Rounds of two workers whose values are finite, but not their sum. Each that fails is lost, but
// not the one at whose end they give up: they stop, and go on from it.
TEST(ElasticAverager, WhoGivesUpKeepsWhatItHasLearned) {
  const StopSignal stop;
  const TestLighthouse lighthouse;
  run_workers(2, [&](int worker) {
    ElasticOptions options = options_of(lighthouse, worker, 2);
    options.join_timeout_s = 0.2;
    options.patience_s = 0.3;
    Toy toy;
    ElasticAverager averager(options, say_nothing);
    averager.join(toy.state(), "toy");
    const auto make_model = [] { return std::vector<Unit>{{"unit", {{"w", at::zeros({3})}}}}; };
    FlatModel model(make_model()), global(make_model());
    Diloco diloco(model, global, {}, averager);
    for (int round = 0; !averager.has_given_up() && round < 1000; ++round) {
      EXPECT_TRUE(model.params().equal(global.params())) << "a failed round is lost";
      model.params().fill_(-3e38);
      if (averager.form_quorum()) diloco.start_average();
      EXPECT_FALSE(finish_round(diloco, averager));
    }
    EXPECT_TRUE(averager.has_given_up());
    EXPECT_EQ(model.params()[0].item<float>(), -3e38F);
    EXPECT_EQ(diloco.round().outer_steps, 0);
    EXPECT_FALSE(diloco.round().pseudogradient.defined());
  });
}

TEST(SnapshotServer, ForgetsWhatNobodyNeeds) {
  SnapshotServer server(0);
  Messenger messenger(
      {}, "", [](const Message&) {}, say_nothing);
  Toy toy;
  const auto quorum = [](int receiver, std::int64_t id) {
    Quorum result = {.id = id, .members = {{.worker = 0, .address = "a"}}};
    result.members.push_back({.worker = receiver, .address = concat("b", receiver), .donor = 0});
    return result;
  };
  server.serve(quorum(1, 1), take_snapshot(toy.state()));
  server.serve(quorum(2, 2), take_snapshot(toy.state()));
  EXPECT_THAT(server.quorums(), ElementsAre(QuorumNumber{0, 1}, QuorumNumber{0, 2}));
  server.forget(quorum(2, 3), 100);  // worker 2 asks again: it needs the old one no more
  EXPECT_THAT(server.quorums(), ElementsAre(QuorumNumber{0, 1}));
  server.forget({}, 0);
  EXPECT_TRUE(server.quorums().empty());
}

TEST(Snapshot, IsAdoptedOnlyIfItIsRight) {
  Toy donor, other;
  donor.shared.fill_(1);
  donor.own.fill_(2);
  donor.outer_steps = 3;
  const Member member = {.outer_steps = 3, .state_hash = shared_hash(donor.state())};
  InFlightBuffer snapshot = take_snapshot(donor.state());
  donor.own.fill_(9);  // it trains on
  for (std::int64_t byte = 0; byte < snapshot.num_bytes; ++byte) {
    snapshot.bytes[static_cast<std::size_t>(byte)] ^= 1;
    EXPECT_EQ(fault_of(snapshot, member, other.state()), "it is damaged") << byte;
    snapshot.bytes[static_cast<std::size_t>(byte)] ^= 1;
  }
  ASSERT_EQ(fault_of(snapshot, member, other.state()), "");
  adopt_snapshot(snapshot, other.state());
  EXPECT_EQ(other.outer_steps, 3);
  EXPECT_TRUE(other.shared.equal(at::full({3}, 1, at::kFloat)));
  EXPECT_TRUE(other.own.equal(at::full({3}, 2, at::kFloat)));
  Toy larger;
  larger.own = at::zeros({4});
  EXPECT_THAT(fault_of(snapshot, member, larger.state()), HasSubstr("64 bytes, not 68"));
}

}  // namespace
}  // namespace ladder
