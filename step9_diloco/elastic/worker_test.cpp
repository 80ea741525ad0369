#include "step9_diloco/elastic/worker.hpp"

#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "common/comm/self_communicator.hpp"
#include "common/testing/parse_options.hpp"
#include "common/testing/temp_folder.hpp"
#include "common/train/checkpoint/checkpoint.hpp"
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
  const auto ignore = [](const LoadedCheckpoint&) {};
  ElasticAverager saved({}, say_nothing), resumed({}, say_nothing), former({}, say_nothing);
  const History history = {kMostId, {9, 7}};  // the largest run that there can be
  saved.restore(history);
  const TrainState state = with_last_quorum({.restore = ignore}, saved);
  EXPECT_EQ(state.history, (std::vector<std::int64_t>{9, 7}));
  LoadedCheckpoint checkpoint;
  checkpoint.extra_counts = state.extra_counts;
  checkpoint.has_read_extras = true;
  with_last_quorum({.restore = ignore}, resumed).restore(checkpoint);
  EXPECT_EQ(resumed.history(), history);
  const Json counts = checkpoint.extra_counts;
  for (const auto& [name, value] : counts.items())  // as a checkpoint reads it
    EXPECT_EQ(count_in(counts, name.c_str(), "state.json"), checkpoint.extra_counts.at(name));
  checkpoint.extra_counts.clear();  // as a former version has written it
  with_last_quorum({.restore = ignore}, former).restore(checkpoint);
  EXPECT_EQ(former.history(), History());
}

// All that changes bits, but for what differs between machines and how fast they are.
TEST(GroupSettings, AreAllThatMustBeEqual) {
  const TempFolder folder;
  const auto settings_of = [&](std::vector<const char*> words, const char* file, char text) {
    const std::string path = folder.write(file, std::string(1000, text));
    words.insert(words.end(), {"--data", path.c_str()});
    const TrainOptions options = parse_words(elastic::trainer(), words).options;
    return group_settings(options, BatchStream(options.data, worker_shard(options)));
  };
  const GroupSettings settings = settings_of({}, "a.txt", 'x');
  EXPECT_EQ(settings.at("--lr"), "0.001");
  for (const char* name : {"--seed", "--layers", "--alpha", "--micro-batch-size", "--workers"})
    EXPECT_TRUE(settings.contains(name)) << name;
  for (const std::vector<const char*>& words : std::vector<std::vector<const char*>>{
           {},
           {"--threads", "2"},
           {"--products", "blas"},
           {"--sync-every", "40", "--sync-delay", "3", "--steps", "400"},
           {"--out", "runs/other", "--round-timeout", "7"}})
    EXPECT_EQ(settings_of(words, "other.txt", 'x'), settings);
  EXPECT_NE(settings_of({"--lr", "0.5"}, "a.txt", 'x'), settings);
  EXPECT_NE(settings_of({}, "b.txt", 'y'), settings);
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
           {{"--patience", "1e9"}, "--patience is 1e+09"},
           {{"--wire", "int8"}, "--wire is for ranks of one run"},
           {{"--gradient-sum", "exact"}, "for steps 0 to 9, not for elastic"},
       })
    expect_refused(elastic::trainer(), words, {message});
  parse_words(elastic::trainer(), {"--elastic", "10.0.0.1:1", "--elastic-key", "key"});
}

TEST(ElasticOptions, HostsOfThisMachineOnly) {
  EXPECT_EQ(host_port("a.b:5").host, "a.b");
  EXPECT_EQ(host_port("a.b:5").port, 5);
  EXPECT_TRUE(is_loopback("127.0.3.4"));
  EXPECT_TRUE(is_loopback("localhost"));
  for (const char* const host :
       {"12.7.0.1", "127.evil.com", "127.0.0.1.evil.com", "127.", "128.0.0.1"})
    EXPECT_FALSE(is_loopback(host)) << host;
  EXPECT_THROW(parse_words(elastic::trainer(), {"--elastic", "127.evil.com:1"}), UsageError);
}

}  // namespace
}  // namespace ladder
