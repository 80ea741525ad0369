#include "common/train/memory_need.hpp"

#include <gtest/gtest.h>

#include "common/model/build_layers.hpp"
#include "common/testing/expect_throws.hpp"
#include "common/testing/parse_options.hpp"
#include "common/testing/temp_folder.hpp"
#include "common/train/cost.hpp"
#include "common/train/dry_run.hpp"

namespace ladder {
namespace {

constexpr double kGiB = 0x1p30;

// Every rank holds a whole replica.
Theory replicas() {
  return {.step = "step_x",
          .state_bytes = [](const TrainOptions& options, int,
                            int) { return replica_state_bytes(options); },
          .sends = nullptr};
}

TrainOptions options_of(const std::vector<const char*>& words) {
  return parse_words(replicas(), words).options;
}

// As on a machine with 24 GiB.
void expect_too_much(const std::vector<const char*>& words, const std::vector<std::string>& parts) {
  expect_throws<UsageError>([&] { check_memory(options_of(words), replicas(), {}, 24 * kGiB); },
                            parts);
}

// Two layers tell what many need: the same bytes as the exact formulas, padding included.
TEST(MemoryNeed, IsThatOfTheFormulas) {
  for (const char* model : {"gpt2", "llama"}) {
    for (const char* precision : {"fp32", "bf16"}) {
      const TrainOptions o = options_of({"--model", model, "--layers", "5", "--heads", "2",
                                         "--channels", "20", "--micro-batch-size", "3",
                                         "--num-microbatches", "2", "--precision", precision});
      const MemoryNeed need = memory_need(o, {});
      EXPECT_EQ(need.state, static_cast<double>(replica_state_bytes(o).total()));
      EXPECT_EQ(need.activations,
                static_cast<double>(saved_activation_bytes(o.model, 3) + loss_bytes(o.model, 3)));
      EXPECT_EQ(need.tokens, 6 * 128 * 16);
    }
  }
}

TEST(MemoryNeed, CountsEveryRankOfThisMachine) {
  const TrainOptions o = options_of({});
  const MemoryNeed one = memory_need(o, {});
  EXPECT_EQ(memory_need(o, {4, 4}).activations, 4 * one.activations);
  EXPECT_EQ(memory_need(o, {4, 4}).tokens, 4 * one.tokens);
  EXPECT_EQ(memory_need(o, {4, 2}).activations, 2 * one.activations);
  EXPECT_EQ(memory_need(o, {4, 4}).state, one.state);  // shards of one replica
  const double state = static_cast<double>(replica_state_bytes(o).total());
  EXPECT_NO_THROW(check_memory(o, replicas(), {4, 2}, 2 * state + memory_need(o, {4, 2}).total()));
  expect_throws<UsageError>(
      [&] {
        check_memory(o, replicas(), {4, 4}, 3.9 * state);
      },
      {"for the 4 ranks on this machine"});
}

// The stages of a replica share it, and all ranks that are here share the machine.
TEST(MemoryNeed, OfAPipelineIsThatOfItsReplicas) {
  const TrainOptions o = options_of({});
  const MemoryNeed one = memory_need(o, {});
  EXPECT_EQ(memory_need(o, {2, 2}, /*ranks_per_replica=*/2).activations, one.activations);
  EXPECT_EQ(memory_need(o, {4, 4}, 2).activations, 2 * one.activations);
  EXPECT_EQ(memory_need(o, {4, 4}, 2).state, 2 * one.state);
  EXPECT_EQ(memory_need(o, {4, 2}, 2).state, 0);  // these two may be small stages
  TrainOptions pairs = o;
  pairs.set<GivenShape>() = {{.rows_per_sample = 2}};
  EXPECT_EQ(memory_need(pairs, {}).activations, 2 * one.activations);
}

// docs/gpu.md: step 0 with GPT-2's 124 million parameters, padded to 50,304 tokens, in bf16, 16 rows.
TEST(WorkingBytes, OnAnH100AreThoseThatARunHeld) {
  const TrainOptions o =
      options_of({"--device", "cuda", "--layers", "12", "--heads", "12", "--channels", "768",
                  "--context", "1024", "--vocab-size", "50304", "--micro-batch-size", "16"});
  const auto held = 10500723916.0 - static_cast<double>(replica_state_bytes(o).total());
  EXPECT_GE(static_cast<double>(working_bytes(o)), held);
  EXPECT_LE(static_cast<double>(working_bytes(o)), 1.002 * held);
}

TEST(MemoryNeed, OnAGpuOnlyTokensAreInHostMemory) {
  const MemoryNeed need = memory_need(options_of({"--device", "cuda"}), {});
  EXPECT_EQ(need.total(), 4 * 128 * 16);
}

// A microbatch of more rows than the data has samples is an epoch. So a small file trains with any
// number of rows, and the built-in corpus does not.
TEST(MemoryNeed, IsBoundedByTheData) {
  const TempFolder folder;
  const std::string text = folder.write("a.txt", std::string(2000, 'a'));
  const TrainOptions small =
      options_of({"--data", text.c_str(), "--micro-batch-size", "2147483648"});
  EXPECT_NO_THROW(check_memory(small, replicas(), {}, kGiB));
  EXPECT_EQ(memory_need(small, {}, 1, 15).tokens, 15 * 128 * 16);
  EXPECT_EQ(memory_need(small, {4, 4}, 1, 15).tokens, 4 * 3 * 128 * 16);
  expect_too_much(
      {"--micro-batch-size", "2147483648"},
      {"this run needs at least 203.8 GiB", "it can have at most 24.0 GiB",
       "12.9 MiB for parameters, gradients and optimizer (--layers 4, --channels 128",
       "for the activations of a microbatch", "--micro-batch-size 2147483648", "--dry-run"});
}

TEST(MemoryNeed, OfManyLayersOrWideOnesIsRefused) {
  expect_too_much({"--layers", "65536"}, {"--layers 65536"});
  expect_too_much({"--channels", "65536"}, {"--channels 65536"});
  expect_too_much({"--vocab-size", "4294967296", "--data", "a.bin"}, {"--vocab-size 4294967296"});
  expect_too_much({"--layers", "64", "--channels", "4096"},
                  {"192.", "24.0 GiB"});  // 12.9 billion parameters
  EXPECT_NO_THROW(check_memory(options_of({"--layers", "64", "--channels", "1024"}), replicas(), {},
                               24 * kGiB));
}

// The largest sizes that their rows allow, one with another.
TEST(MemoryNeed, WhatCannotBeCountedIsRefused) {
  const auto refused = [](const std::vector<const char*>& words, const char* part,
                          std::int64_t replicas_per_rank = 1) {
    TrainOptions options = options_of(words);
    options.set<GivenShape>() = {{.replicas_per_rank = replicas_per_rank,
                                  .multiplied = concat(", --replicas ", replicas_per_rank)}};
    expect_throws<UsageError>([&] { check_is_countable(options); }, {part});
    EXPECT_THROW(check_memory(options, replicas(), {}, 0x1p200), UsageError);
    EXPECT_THROW(describe_run(options, replicas(), 1), UsageError);
  };
  refused({"--layers", "65536", "--channels", "262144"}, "--channels 262144, ");
  refused({"--vocab-size", "4294967296", "--channels", "262144"}, "more than Ladder computes with");
  refused({"--micro-batch-size", "2147483648", "--num-microbatches", "2147483648", "--context",
           "4194304"},
          "--replicas 1024, --context 4194304", 1024);
  refused({"--heads", "4096", "--channels", "4096", "--context", "4194304", "--layers", "65536",
           "--precision", "fp16", "--micro-batch-size", "2147483648"},
          "more than Ladder computes with");
  refused({"--layers", "40", "--channels", "2048", "--heads", "16", "--context", "16",
           "--micro-batch-size", "1", "--num-microbatches", "2147483648"},
          "send more bytes per step");
}

}  // namespace
}  // namespace ladder
