// The parity ladder. On as many ranks as this program has, compares every step with the previous
// one and with the oracle, to the bit, and what each holds and sends with theory, to the byte.
#include <ATen/Parallel.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <iterator>
#include <set>
#include <sstream>
#include <utility>

#include "common/core/check.hpp"
#include "common/core/memory_ledger.hpp"
#include "common/model/build_layers.hpp"
#include "common/testing/rank_test.hpp"
#include "step0_single_gpu/judge/comparison.hpp"
#include "step7_zero3/prefetch_options.hpp"
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
// the forward; backward adds activation gradients of at most the same size.
void expect_same_activations(const std::map<std::string, FinishedRun>& runs,
                             const TrainOptions& options) {
  const auto peak = [&](const std::string& step) {
    return runs.at(step).report.memory.peak(MemoryCategory::kActivations);
  };
  const std::int64_t forward = saved_activation_bytes(options.model, options.data.microbatch_size);
  EXPECT_GE(peak("step2_sharded_data"), forward);
  EXPECT_LE(peak("step2_sharded_data"), 3 * forward);
  for (const Rung& rung : rungs()) {
    if (rung.step() == "step1_ddp_reference" || rung.step() == "step2_sharded_data") continue;
    EXPECT_EQ(peak(rung.step()), peak("step2_sharded_data")) << rung.step();
  }
}

// What rounding can cause in 12 steps if the same sums have two orders. In bf16 a difference in the
// last bit of a gradient can move a master over the point at which its parameter is rounded up
// instead of down, by 0.4%.
constexpr Closeness kOtherOrder = {}, kOtherOrderInBf16 = {4e-4, 2e-3, 2e-4};

void climb_all(const std::vector<Configuration>& configurations) {
  Climber climber;
  for (std::size_t first = 0; first < configurations.size();
       first += static_cast<std::size_t>(climber.size())) {
    // Each rank runs the oracle for one configuration, which takes as long as one for all ranks.
    std::vector<Configuration> group(
        configurations.begin() + static_cast<std::ptrdiff_t>(first),
        configurations.begin() +
            static_cast<std::ptrdiff_t>(
                std::min(configurations.size(), first + static_cast<std::size_t>(climber.size()))));
    FinishedRun answer;
    const auto own = static_cast<std::size_t>(climber.rank());
    if (own < group.size())
      answer = climber.ask_oracle(climber.options(group[own]), climber.size());
    climber.wait_for_all();
    for (std::size_t i = 0; i < group.size(); ++i) {
      SCOPED_TRACE(concat(climber.size(), " ranks, ", group[i].name()));
      std::map<std::string, FinishedRun> runs;
      const Rung* previous = &oracle();
      for (const Rung& rung : rungs()) {
        TrainOptions options = climber.options(group[i]);
        options.set<PrefetchOptions>().num_units = static_cast<int>((first + i) % 3);  // of step 7
        const FinishedRun& run = runs[rung.step()] = climber.climb(rung, options);
        EXPECT_EQ(run.report.losses.size(), 12u);
        const bool has_one_order = group[i].num_microbatches == 1;
        if (i == own && (has_one_order || !rung.sums_each_microbatch)) {
          EXPECT_THAT(differences(run, answer), IsEmpty());  // only this rank has it
        }
        const Rung& before = *std::exchange(previous, &rung);
        if (before.step() == oracle().step()) continue;
        if (has_one_order || before.sums_each_microbatch == rung.sums_each_microbatch) {
          EXPECT_THAT(differences(run, runs[before.step()]), IsEmpty());
        } else {
          SCOPED_TRACE(
              concat(run.name, " against ", before.step(), ", which sums in another order"));
          expect_close(run, runs[before.step()],
                       group[i].is_bf16 ? kOtherOrderInBf16 : kOtherOrder);
        }
      }
      expect_sharded_reading(runs["step1_ddp_reference"], runs["step2_sharded_data"], group[i].rows,
                             test_world().comm());
      expect_same_activations(runs, climber.options(group[i]));
    }
  }
}

TEST(ParityLadder, EveryStepEqualsTheOneBeforeAndTheOracle) {
  climb_all(covering_set());
}

// The smallest possible batch: one microbatch of one row on each rank. Also, the text that the
// model writes at the end, generated on every rank in steps 1 to 6 and by all ranks together in
// step 7.
TEST(ParityLadder, OneSequencePerRankIsEnough) {
  Climber climber;
  TrainOptions options = climber.options(covering_set()[0]);
  options.data.microbatch_size = 1;
  options.output.sample = "line ";
  for (const Rung& rung : rungs()) {
    const FinishedRun run = climber.climb(rung, options);
    const FinishedRun wanted = climber.expect_oracle(run, options, climber.size());
    EXPECT_EQ(run.report.sample, wanted.report.sample) << rung.step();
    if (climber.rank() == 0) {
      EXPECT_FALSE(run.report.sample.empty()) << rung.step();
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
