#include "step9_diloco/elastic/worker.hpp"

#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include "common/comm/self_communicator.hpp"
#include "common/testing/parse_options.hpp"
#include "common/testing/temp_folder.hpp"
#include "step9_diloco/averager.hpp"
#include "step9_diloco/diloco_options.hpp"
#include "step9_diloco/elastic/train.hpp"

namespace ladder {
namespace {

// A worker of rounds of 6 steps, two of which it has taken in this one, heals from one of rounds of
// 4.
TEST(WorkerState, TheRunGoesOnFromTheDonorsRoundOrItsOwnLastOne) {
  const TempFolder folder;
  SelfCommunicator comm;
  TrainOptions options;
  options.data.source = folder.write("text.txt", std::string(1000, 'x'));
  options.output.is_quiet = true;
  options.num_steps = 60;
  options.set<DilocoOptions>().sync_every = 6;
  finalize(options);
  const auto make_model = [] {
    return FlatModel({{"unit", {{"w", at::zeros({2}).set_requires_grad(true)}}}});
  };
  FlatModel model = make_model(), global = make_model();
  const FlatGradients grads(model);
  Optimizer inner(model, grads, options.optimizer);
  GroupAverager averager(comm);
  Diloco diloco(model, global, options.set<DilocoOptions>(), averager);
  ladder::Run run(options, comm);
  const WorkerState state = worker_state(diloco, model, global, inner, run, options);
  run.continue_from(2);
  state.set_counters({5, 20, 5});
  EXPECT_EQ(run.num_steps_taken(), 5 * 6 + 2);
  EXPECT_EQ(diloco.round().outer_steps, 5);
  EXPECT_EQ(inner.num_steps(), 20);
  EXPECT_EQ(state.counters(), (std::vector<std::int64_t>{5, 20, 5}));
  state.set_counters({10, 40, 10});  // the donor has finished: 10 rounds, 60 steps of this worker
  EXPECT_EQ(run.num_steps_taken(), 9 * 6 + 2);
}

TEST(WorkerState, ACheckpointSaysHowNewItIs) {
  const auto ignore = [](const TrainState&) {};
  ElasticAverager saved({}, say_nothing), resumed({}, say_nothing), former({}, say_nothing);
  saved.restore({9, 7});
  TrainState checkpoint = with_last_quorum({.restore = ignore}, saved);
  EXPECT_EQ(checkpoint.history, (std::vector<std::int64_t>{9, 7}));
  checkpoint.has_extras = true;
  with_last_quorum({.restore = ignore}, resumed).restore(checkpoint);
  EXPECT_EQ(resumed.last_quorum(), (QuorumNumber{9, 7}));
  checkpoint.extra_counts.clear();  // as a former version has written it
  with_last_quorum({.restore = ignore}, former).restore(checkpoint);
  EXPECT_EQ(former.last_quorum(), QuorumNumber());
}

TEST(ElasticOptions, WhatCannotBeIsRefused) {
  struct Case {
    std::vector<const char*> words;
    const char* message;
  };
  for (const auto& [words, message] : std::vector<Case>{
           {{"--elastic", "here"}, "--elastic is 'here', it must be HOST:PORT"},
           {{"--elastic", ":1"}, "must be HOST:PORT"},
           {{"--elastic", "localhost:70000"}, "must be HOST:PORT"},
           {{"--elastic", "localhost:1x", "--elastic-key", "key"}, "must be HOST:PORT"},
           {{"--elastic", "[::1]:5"}, "use IPv4 only"},
           {{"--elastic", "::1:5"}, "use IPv4 only"},
           {{"--elastic", "10.0.0.1:1"}, "need --elastic-key"},
           {{"--workers", "3", "--worker", "3"},
            "--worker is 3, with --workers 3 it must be from 0 to 2"},
           {{"--worker", "1"}, "from 0 to 0"},
           {{"--workers", "3", "--min-workers", "4"}, "from 1 to the 3"},
           {{"--join-timeout", "0"}, "--join-timeout is 0, it must be above 0"},
           {{"--patience", "1e9"}, "--patience is 1e+09"},
           {{"--patience", "60"}, "of --join-timeout"},
           {{"--wire", "int8"}, "--wire is for ranks of one run"},
       })
    expect_refused(elastic::trainer(), words, {message});
  parse_words(elastic::trainer(), {"--elastic", "10.0.0.1:1", "--elastic-key", "key"});
}

TEST(ElasticOptions, HostsOfThisMachineOnly) {
  EXPECT_EQ(host_port("a.b:5").host, "a.b");
  EXPECT_EQ(host_port("a.b:5").port, 5);
  EXPECT_TRUE(is_loopback("127.0.3.4"));
  EXPECT_FALSE(is_loopback("12.7.0.1"));
}

}  // namespace
}  // namespace ladder
