// The parity ladder: every step against the one before it and against the oracle, to the bit, on as
// many ranks as this program has; what each holds and sends against theory, to the byte; and the
// same loop with mistakes in it, each of which must be found.
#include <ATen/Parallel.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <iterator>
#include <set>
#include <sstream>
#include "common/comm/gather_text.hpp"

#include "common/comm/self_communicator.hpp"
#include "common/core/check.hpp"
#include "common/core/memory_ledger.hpp"
#include "common/testing/mpi_world.hpp"
#include "tests/parity/comparison.hpp"
#include "tests/parity/configurations.hpp"
#include "tests/parity/planted_errors.hpp"
#include "tests/parity/rungs.hpp"

namespace ladder {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;

// Runs trainers on all ranks, and the oracle on one. Every rank has the same files in view.
class Climber {
 public:
  Climber() : comm_(mpi_world().comm()), texts_(folder_) {
    install_memory_ledger();
    shared_folder_ = all_gather_text(folder_.path().string(), comm_)[0];
  }

  int rank() const { return comm_.rank(); }
  int size() const { return comm_.size(); }
  TrainOptions options(const Configuration& configuration) const {
    return options_of(configuration, texts_);
  }
  void wait_for_all() { comm_.barrier(); }

  FinishedRun climb(const Rung& rung, TrainOptions options) {
    options.step = rung.step;
    options.output.out = folder_for(rung.step);
    const std::int64_t before = read_memory().total_live_bytes;
    FinishedRun run = {rung.step, rung.train(options, mpi_world()), options.output.out};
    expect_theory(rung, options, run.report, before);
    wait_for_all();  // rank 0 has written its checkpoint
    return run;
  }

  FinishedRun climb_with(PlantedError error, TrainOptions options) {
    options.step = "step3_naive_dp";
    options.output.out = folder_for("planted");
    FinishedRun run = {to_string(error), train_with(error, options, mpi_world()),
                       options.output.out};
    wait_for_all();
    return run;
  }

  // Local: plays all ranks in this one.
  FinishedRun ask_oracle(TrainOptions options) {
    World alone(std::make_unique<SelfCommunicator>());
    options.step = oracle().step;
    options.groups = {OptionGroup::kSimulatedRanks};
    options.simulate_ranks = size();
    options.output.out = concat(folder_for(oracle().step), "-rank", rank());
    return {oracle().step, oracle().train(options, alone), options.output.out};
  }

 private:
  // A new one for every run, the same on all ranks.
  std::string folder_for(const std::string& name) {
    return concat(shared_folder_, "/", num_runs_++, "-", name);
  }

  void expect_theory(const Rung& rung, const TrainOptions& options, const TrainReport& report,
                     std::int64_t live_before) const {
    SCOPED_TRACE(concat(rung.step, ": measured against theory"));
    const StateBytes theory = rung.state_bytes(options, size(), rank());
    EXPECT_EQ(report.memory.live(MemoryCategory::kParameters), theory.parameters);
    EXPECT_EQ(report.memory.live(MemoryCategory::kGradients), theory.gradients);
    EXPECT_EQ(report.memory.live(MemoryCategory::kOptimizer), theory.optimizer);
    EXPECT_EQ(report.memory.live(MemoryCategory::kCommunication), theory.communication);
    EXPECT_EQ(report.memory.total_live_bytes - live_before, theory.total());
    Traffic traffic = rung.step_traffic(options, size(), rank());
    traffic *= static_cast<std::int64_t>(report.losses.size());
    for (int i = 0; i < kNumCommOps; ++i) {
      const auto op = static_cast<CommOp>(i);
      EXPECT_EQ(report.traffic[op].calls, traffic[op].calls) << to_string(op);
      EXPECT_EQ(report.traffic[op].bytes_sent, traffic[op].bytes_sent) << to_string(op);
      EXPECT_EQ(report.traffic[op].messages, traffic[op].messages) << to_string(op);
    }
  }

  Communicator& comm_;
  TempFolder folder_;
  Texts texts_;
  std::string shared_folder_;
  int num_runs_ = 0;
};

// Bytes of data that each rank has read: all of the global batch in step 1, its own part in step 2.
void expect_sharded_reading(const FinishedRun& whole, const FinishedRun& sharded, Rows rows,
                            Communicator& comm) {
  const auto own = static_cast<double>(sharded.report.data_bytes_read);
  EXPECT_EQ(all_reduce_sum(own, comm), whole.report.data_bytes_read);
  if (rows == Rows::kWindows) {
    EXPECT_EQ(sharded.report.data_bytes_read * comm.size(), whole.report.data_bytes_read);
  }
}

void climb_all(const std::vector<Configuration>& configurations) {
  Climber climber;
  for (std::size_t first = 0; first < configurations.size();
       first += static_cast<std::size_t>(climber.size())) {
    // Each rank asks the oracle about one configuration: that takes as long as for all ranks one.
    std::vector<Configuration> group(
        configurations.begin() + static_cast<std::ptrdiff_t>(first),
        configurations.begin() +
            static_cast<std::ptrdiff_t>(
                std::min(configurations.size(), first + static_cast<std::size_t>(climber.size()))));
    FinishedRun answer;
    const auto own = static_cast<std::size_t>(climber.rank());
    if (own < group.size()) answer = climber.ask_oracle(climber.options(group[own]));
    climber.wait_for_all();
    for (std::size_t i = 0; i < group.size(); ++i) {
      SCOPED_TRACE(concat(climber.size(), " ranks, ", group[i].name()));
      std::map<std::string, FinishedRun> runs;
      if (i == own) runs[oracle().step] = answer;
      for (const Rung& rung : rungs()) {
        const FinishedRun& run = runs[rung.step] = climber.climb(rung, climber.options(group[i]));
        EXPECT_EQ(run.report.losses.size(), 12u);
        for (const std::string& wanted : rung.equals) {
          if (!runs.contains(wanted)) continue;  // the oracle's answer lies with another rank
          EXPECT_THAT(differences(run, runs[wanted]), IsEmpty());
        }
      }
      expect_sharded_reading(runs["step1_ddp_reference"], runs["step2_sharded_data"], group[i].rows,
                             mpi_world().comm());
    }
  }
}

TEST(ParityLadder, EveryStepEqualsTheOneBeforeAndTheOracle) {
  climb_all(covering_set());
}

// Each step goes on from what the step before it has written in the middle of an epoch; the end is
// that of a run that nobody interrupted.
TEST(ParityLadder, EveryStepGoesOnFromTheCheckpointOfAnother) {
  Climber climber;
  const Configuration configuration = covering_set()[1];
  const Rung* writer = &rungs().back();
  for (const Rung& rung : rungs()) {
    SCOPED_TRACE(concat(climber.size(), " ranks, ", writer->step, " → ", rung.step));
    TrainOptions options = climber.options(configuration);
    options.output.save_every = 5;
    options.output.keep = 0;
    const FinishedRun whole = climber.climb(*writer, options);
    options.output.resume = whole.folder + "/checkpoints/step_000005";
    FinishedRun rest = climber.climb(rung, options);
    EXPECT_EQ(rest.report.first_step, 5);
    EXPECT_EQ(rest.report.losses,
              std::vector<double>(whole.report.losses.begin() + 5, whole.report.losses.end()));
    EXPECT_EQ(rest.report.param_hash, whole.report.param_hash);
    writer = &rung;
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
  EXPECT_EQ(pairs, pairs_of_all);
}

// ./ladder run climbs by a table of its own, which must say the same.
TEST(ParityLadder, LaunchersTableHasTheSameRungs) {
  std::ifstream file(LADDER_SOURCE "/scripts/ladder_stages.tsv");
  std::map<std::string, std::string> equals;
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with("#")) continue;
    std::istringstream fields(line);
    std::string name, step, ranks, reference, within;
    fields >> name >> step >> ranks >> reference >> within;
    EXPECT_TRUE(within == "bits" || reference == "-") << line;
    equals[step] = reference;
  }
  std::map<std::string, std::string> wanted = {{oracle().step, "-"}};
  for (const Rung& rung : rungs()) wanted[rung.step] = rung.equals.front();
  EXPECT_EQ(equals, wanted);
}

// What the last step shows: the lesson of step 3 quotes it.
void print_last_step(const FinishedRun& run) {
  if (mpi_world().comm().rank() != 0) return;
  std::printf("  %-55s loss %.7f   gradient norm %.4f\n", run.name.c_str(),
              run.report.losses.back(), run.report.grad_norms.back());
}

TEST(ParityLadder, FindsEveryPlantedErrorAndSaysWhere) {
  Climber climber;
  if (climber.size() == 1) return;  // one rank alone cannot make these mistakes
  std::vector<Configuration> two = {covering_set()[1], covering_set()[2]};
  for (const Configuration& configuration : two) {
    SCOPED_TRACE(concat(climber.size(), " ranks, ", configuration.name()));
    const TrainOptions options = climber.options(configuration);
    const FinishedRun right = climber.climb(rungs().back(), options);
    if (climber.rank() == 0) std::printf("%s\n", configuration.name().c_str());
    print_last_step(right);
    EXPECT_THAT(differences(climber.climb_with(PlantedError::kNone, options), right), IsEmpty());
    for (const PlantedError error : planted_errors()) {
      if (error == PlantedError::kOwnDenominator && configuration.rows == Rows::kWindows) {
        continue;  // all rows are full: the counts are equal
      }
      const FinishedRun wrong = climber.climb_with(error, options);
      print_last_step(wrong);
      std::string all;
      for (const std::string& line : differences(wrong, right)) all += line + "\n";
      EXPECT_THAT(all,
                  HasSubstr(concat(to_string(error), " against step4_bucketed_ddp: step 1 of 12")));
      EXPECT_THAT(all, HasSubstr("the gradient norm is "));
      EXPECT_THAT(all, HasSubstr("more than rounding"));
      EXPECT_THAT(all, HasSubstr("tensor 'wte.weight' differs in "));
    }
  }
}

}  // namespace
}  // namespace ladder
