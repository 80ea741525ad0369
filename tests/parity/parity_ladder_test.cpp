// The parity ladder. On as many ranks as this program has, processes or threads, compares every step
// with the oracle, to the bit, and what each holds and sends with theory, to the byte. (With several
// microbatches, steps 6 and 7 sum in another order, so there sums are exact.)
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <iterator>
#include <set>
#include <sstream>

#include "common/comm/messages/message_communicator.hpp"
#include "common/core/check.hpp"
#include "common/core/memory_ledger.hpp"
#include "common/model/build_layers.hpp"
#include "common/model/model_cost.hpp"
#include "common/testing/rank_test.hpp"
#include "common/train/checkpoint/checkpoint.hpp"
#include "common/train/checkpoint/disk.hpp"
#include "step0_single_gpu/judge/comparison.hpp"
#include "step7_zero3/train.hpp"
#include "tests/parity/climber.hpp"
#include "tests/parity/configurations.hpp"
#include "tests/parity/rungs.hpp"

namespace ladder {
namespace {

using ::testing::IsEmpty;
using ::testing::IsSupersetOf;

// The bytes of data that each rank reads: the whole global batch in step 1, its own part in step 2.
void expect_sharded_reading(const FinishedRun& whole, const FinishedRun& sharded, Rows rows,
                            Communicator& comm) {
  const auto own = static_cast<double>(sharded.report.data_bytes_read);
  EXPECT_EQ(all_reduce_sum(own, comm), whole.report.data_bytes_read);
  if (rows == Rows::kWindows) {
    EXPECT_EQ(sharded.report.data_bytes_read * comm.size(), whole.report.data_bytes_read);
  }
}

// However the model's state is cut, forward and backward need the same memory for activations. (In
// step 1 and in the oracle a rank also holds other ranks' rows.) The formula gives the memory of
// the forward; backward adds activation gradients of at most the same size, and what it has computed
// again.
void expect_same_activations(const std::map<std::string, FinishedRun>& runs,
                             const TrainOptions& options) {
  const auto peak = [&](const std::string& step) {
    return runs.at(step).report.memory.peak(MemoryCategory::kActivations);
  };
  const std::int64_t forward = saved_activation_bytes(options.model, options.data.microbatch_size);
  EXPECT_GE(peak("step2_sharded_data"), forward);
  TrainOptions kept = options;
  kept.model.recompute = Recompute::kNone;
  EXPECT_LE(peak("step2_sharded_data"),
            3 * saved_activation_bytes(kept.model, options.data.microbatch_size));
  for (const Trainer& rung : rungs()) {
    if (rung.step == "step1_ddp_reference" || rung.step == "step2_sharded_data") continue;
    EXPECT_EQ(peak(rung.step), peak("step2_sharded_data")) << rung.step;
  }
}

// Whichever ranks have sent it to the one that writes.
std::string optimizer_file(const FinishedRun& run) {
  return read_text_file(*newest_checkpoint(run.folder) / "optimizer.safetensors");
}

void climb_all(const std::vector<Configuration>& configurations) {
  Climber climber;
  int number = 0;
  for (const Configuration& configuration : configurations) {
    SCOPED_TRACE(concat(climber.size(), " ranks, ", configuration.name()));
    TrainOptions options = climber.options(configuration);
    options.set<PrefetchOptions>().num_units = number % 3;
    if (number++ % 4 == 0) {
      options.data.microbatch_size = 1;
      options.output.sample = "line ";  // in step 7, all ranks generate the text together
    }
    std::map<std::string, FinishedRun> runs;
    std::map<SumMode, FinishedRun> answers;  // of the oracle, on rank 0
    for (const Trainer& rung : rungs()) {
      const TrainOptions own = comparable(rung, options);
      const FinishedRun& run = runs[rung.step] = climber.climb(rung, own);
      EXPECT_EQ(run.report.losses.size(), 12u);
      if (climber.rank() != 0) continue;
      const auto [wanted, is_new] = answers.try_emplace(own.gradient_sum);
      if (is_new) wanted->second = climber.ask_oracle(own, climber.size());
      EXPECT_THAT(differences(run, wanted->second), IsEmpty());
      EXPECT_EQ(run.report.sample, wanted->second.report.sample);
      EXPECT_EQ(run.report.sample.empty(), own.output.sample.empty());
      EXPECT_TRUE(optimizer_file(run) == optimizer_file(wanted->second));
    }
    expect_sharded_reading(runs["step1_ddp_reference"], runs["step2_sharded_data"],
                           configuration.rows, test_world().comm());
    if (ranks_are_processes()) expect_same_activations(runs, options);
  }
}

class ParityLadder {};

// Threads train three configurations, of which each has something that the others lack.
TEST_ON_RANKS(ParityLadder, EveryStepEqualsTheOracle) {
  const std::vector<Configuration> all = covering_set();
  climb_all(ranks_are_processes() ? all : std::vector{all[1], all[8], all[10]});
}

// Two ranks on each machine, which first add up there. What each sends outside is as theory says,
// and for four ranks a third of what it sends to all, where a direct exchange would send two.
TEST_ON_RANKS(ParityLadder, MachinesChangeNoBit) {
  Climber climber;
  const auto cluster = test_world().comm().split(0, 0);
  place_on(machines_of(climber.size(), 2), *cluster);
  TrainOptions options = climber.options(covering_set()[1]);
  options.num_steps = 3;
  for (const Trainer& rung : rungs()) {
    const TrainOptions own = comparable(rung, options);
    const FinishedRun apart = climber.climb(rung, own, *cluster);
    EXPECT_THAT(differences(apart, climber.climb(rung, own)), IsEmpty()) << rung.step;
    std::int64_t outer_bytes = 0;
    for (const OpTraffic& op : apart.report.traffic.ops) outer_bytes += op.outer_bytes;
    if (climber.size() == 4) {
      EXPECT_LT(2 * outer_bytes, apart.report.traffic.bytes_sent()) << rung.step;
    }
  }
}

// What differs from Llama, in 16 bits and with cheap recomputation.
TEST_ON_RANKS(ParityLadder, LlamasRelativesEqualTheOracle) {
  Climber climber;
  for (const ModelFamily family : {ModelFamily::kSmolLm3, ModelFamily::kOlmo2}) {
    TrainOptions options = climber.options(covering_set()[6]);
    options.model.family = family;
    options.model.no_rope_interval = family == ModelFamily::kSmolLm3 ? 2 : 0;
    options.num_steps = 3;
    for (const Trainer& rung : rungs()) {
      const TrainOptions own = comparable(rung, options);
      climber.expect_oracle(climber.climb(rung, own), own, climber.size());
    }
  }
}

// ctest -L full
TEST(ParityLadder, DISABLED_FullProduct) {
  climb_all(full_product());
}

TEST(ParityLadder, CoveringSetHasEveryPairOfValues) {
  std::set<std::pair<std::string, std::string>> pairs_of_all, pairs;
  const auto collect = [](const std::vector<Configuration>& configurations, auto& into) {
    for (const Configuration& configuration : configurations) {
      std::istringstream names(configuration.name());
      const std::vector<std::string> values{std::istream_iterator<std::string>(names), {}};
      for (const std::string& a : values) {
        for (const std::string& b : values) into.emplace(a, b);
      }
    }
  };
  collect(full_product(), pairs_of_all);
  collect(covering_set(), pairs);
  EXPECT_THAT(pairs, IsSupersetOf(pairs_of_all));  // besides, it has rows of conversations
}

}  // namespace
}  // namespace ladder
