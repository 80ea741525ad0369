// Hybrid sharding: steps 5 to 7, whose state is cut over some of the ranks, equal the oracle, and hold
// and send what theory says, whatever the cut. Mistakes that others have made show.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <bit>

#include "common/comm/work_then.hpp"
#include "common/core/check.hpp"
#include "common/testing/rank_test.hpp"
#include "common/train/build_model.hpp"
#include "common/train/differences.hpp"
#include "common/train/start.hpp"
#include "step5_zero1/shard_options.hpp"
#include "step5_zero1/shard_plan.hpp"
#include "step7_zero3/train.hpp"
#include "tests/parity/climber.hpp"

namespace ladder {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr const char* kSteps[] = {"step5_zero1", "step6_zero2", "step7_zero3"};

TrainOptions cut_over(TrainOptions options, int num_ranks) {
  options.set<ShardOptions>().num_ranks = num_ranks;
  return options;
}

std::vector<int> divisors_of(int number) {
  std::vector<int> all;
  for (int each = 1; each <= number; ++each)
    if (number % each == 0) all.push_back(each);
  return all;
}

class HybridLadder {};

// Sums in order where the tree is that of all ranks; else exact ones. In turn: ragged documents with
// clipping and three microbatches, 16 bits, widths that need padding, a text that all ranks write
// together; gathers ahead.
TEST_ON_RANKS(HybridLadder, EveryCutEqualsTheOracle) {
  Climber climber;
  const std::vector<Configuration> all = covering_set();
  int number = 0;
  for (const std::size_t i : {1, 3, 8}) {
    TrainOptions options = climber.options(all[i]);
    options.num_steps = 4;
    options.output.eval_every = 2;
    if (i == 3) options.output.sample = "line ";
    std::map<SumMode, FinishedRun> answers;  // of the oracle, on rank 0
    for (const int num_ranks : divisors_of(climber.size())) {
      if (num_ranks == climber.size() && i > 1) continue;  // as without the option
      for (const char* step : kSteps) {
        SCOPED_TRACE(concat(climber.size(), " ranks, ", num_ranks, " of them share a copy, ", step,
                            ", ", all[i].name()));
        options.set<PrefetchOptions>().num_units = number++ % 3;
        TrainOptions own = comparable(rung_of(step), options);
        const bool is_tree_of_all =
            num_ranks == climber.size() || std::has_single_bit(static_cast<unsigned>(num_ranks));
        if (!is_tree_of_all) own = with_sums_of_any_order(own);
        TrainOptions cut = cut_over(own, num_ranks);
        const bool writes = step == kSteps[2] && 2 * num_ranks == climber.size();  // it takes long
        if (!writes) cut.output.sample.clear();
        const FinishedRun run = climber.climb(rung_of(step), cut);
        if (climber.rank() != 0) continue;
        const auto [wanted, is_new] = answers.try_emplace(own.gradient_sum);
        if (is_new) wanted->second = climber.ask_oracle(own, climber.size());
        EXPECT_THAT(differences(run, wanted->second), IsEmpty());
        if (writes) {
          EXPECT_EQ(run.report.sample, wanted->second.report.sample);
        }
      }
    }
  }
}

// A gradient that overflows on one rank makes all copies skip the step, and the scale doubles.
TEST_ON_RANKS(HybridLadder, AllCopiesSkipTheSameSteps) {
  Climber climber;
  TrainOptions options = climber.options(covering_set()[4]);
  options.model.precision.params = NumberFormat::kFp16;
  options.loss_scale = {.initial = 1 << 24, .window = 3};
  options.data.num_microbatches = 1;
  options.num_steps = 14;
  FinishedRun wanted;
  if (climber.rank() == 0) wanted = climber.ask_oracle(options, climber.size());
  for (const char* step : kSteps) {
    SCOPED_TRACE(step);
    const FinishedRun run = climber.climb(rung_of(step), cut_over(options, 1));
    EXPECT_GT(run.report.skipped_steps, 0);
    if (climber.rank() != 0) continue;
    EXPECT_THAT(differences(run, wanted), IsEmpty());
    EXPECT_EQ(run.report.skipped_steps, wanted.report.skipped_steps);
  }
}

// Each run goes on from a checkpoint of the one before it, with another cut, in another step, in one
// that does not cut; and all end alike.
TEST_ON_RANKS(HybridLadder, ACheckpointOfAnyCutGoesOnWithAnyOther) {
  Climber climber;
  TrainOptions options = climber.options(covering_set()[3]);
  options.num_steps = 7;
  options.output.save_every = 1;
  options.output.keep = 0;
  FinishedRun whole;
  if (climber.rank() == 0) whole = climber.ask_oracle(options, climber.size());
  struct Leg {
    const char* step;
    int num_ranks;
  };
  const int half = climber.size() % 2 == 0 ? climber.size() / 2 : 1;
  int num_taken = 0;
  for (const auto& [step, num_ranks] :
       {Leg{kSteps[0], half}, Leg{kSteps[1], 0}, Leg{kSteps[2], 1}, Leg{"step4_bucketed_ddp", 0},
        Leg{kSteps[2], half}, Leg{kSteps[0], 1}}) {
    SCOPED_TRACE(concat("after step ", num_taken, ": ", step, ", cut over ", num_ranks));
    const FinishedRun run = climber.climb(rung_of(step), cut_over(options, num_ranks));
    EXPECT_EQ(run.report.first_step, num_taken);
    options.output.resume = concat(run.folder, "/checkpoints/step_00000", ++num_taken);
    if (climber.rank() != 0) continue;
    EXPECT_EQ(run.report.param_hash, whole.report.param_hash);
  }
}

// What others got wrong. Plays it on the communicators of shard groups and copies.
enum class Mistake {
  kNormCountsCopies,    // the squares of all ranks are summed, those of copies too
  kOnlyLastMicrobatch,  // the others' gradients are not summed over copies
  kHalvedAlone,         // a group of one divides a sum as if it had two ranks
};

class MistakenGroup final : public ForwardingCommunicator {
 public:
  MistakenGroup(std::unique_ptr<Communicator> inner, Mistake mistake, bool is_of_copies,
                int num_copies, std::int64_t num_skipped, std::int64_t num_in_step)
      : ForwardingCommunicator(std::move(inner)),
        mistake_(mistake),
        is_of_copies_(is_of_copies),
        num_copies_(num_copies),
        num_skipped_(num_skipped),
        num_in_step_(num_in_step) {}

  WorkPtr start(const Operation& operation) override {
    const CommOp kind = operation.kind;
    const auto times = [&](double factor, const at::Tensor& result) {
      return std::make_unique<WorkThen>(inner_.start(operation),
                                        [=] { result.variable_data().mul_(factor); });
    };
    if (mistake_ == Mistake::kNormCountsCopies && kind == CommOp::kAllGather &&
        operation.tensor.scalar_type() == at::kDouble)
      return times(num_copies_, operation.tensor);
    if (mistake_ == Mistake::kHalvedAlone && kind == CommOp::kReduceScatter && size() == 1)
      return times(0.5, operation.shard);
    if (mistake_ == Mistake::kOnlyLastMicrobatch && is_of_copies_ &&
        num_started_++ % num_in_step_ < num_skipped_)
      return std::make_unique<DoneWork>();
    return inner_.start(operation);
  }

 private:
  Mistake mistake_;
  bool is_of_copies_;
  int num_copies_;
  std::int64_t num_skipped_, num_in_step_, num_started_ = 0;
};

class MistakenWorld final : public ForwardingCommunicator {
 public:
  MistakenWorld(Communicator& world, Mistake mistake, const TrainOptions& options)
      : ForwardingCommunicator(world), mistake_(mistake), options_(options) {}

  // First the shard group, then its copies.
  std::unique_ptr<Communicator> split_by(const ColorOfRank& color_of) override {
    const int num_ranks = shard_ranks_of(options_, size());
    const std::int64_t num_units =
        std::ssize(plan_unit_buckets(layout_of(options_, shard_multiple(num_ranks))));
    const std::int64_t num_microbatches = options_.data.num_microbatches;
    return std::make_unique<MistakenGroup>(inner_.split_by(color_of), mistake_, ++num_splits_ == 2,
                                           size() / num_ranks, num_units * (num_microbatches - 1),
                                           num_units * num_microbatches);
  }

 private:
  Mistake mistake_;
  const TrainOptions& options_;
  int num_splits_ = 0;
};

// A run with full rows in all microbatches, before any epoch ends.
TrainOptions options_for_mistakes(const Climber& climber, const Trainer& rung) {
  Configuration configuration = covering_set()[4];
  configuration.num_microbatches = rung.sums_each_microbatch ? 3 : 1;
  TrainOptions options = climber.options(configuration);
  options.num_steps = 2;
  options.output.eval_every = 0;
  options.gradient_sum = SumMode::kOrdered;
  return options;
}

std::vector<std::string> all_that_shows(const Trainer& rung, const TrainOptions& options,
                                        const FinishedRun& run, const FinishedRun& wanted,
                                        const Communicator& comm) {
  std::vector<std::string> lines = differences(run, wanted);
  const Traffic theory =
      traffic_theory(rung, options, steps_of(run.report), comm.size(), comm.rank());
  if (run.report.traffic != theory) lines.emplace_back("the traffic is not that of theory");
  return lines;
}

TEST_ON_RANKS(HybridLadder, MistakesOfOthersShow) {
  Climber climber;
  if (climber.size() == 1) return;  // there are no copies
  Communicator& comm = test_world().comm();
  for (const char* step : kSteps) {
    const Trainer& rung = rung_of(step);
    TrainOptions options = options_for(rung, cut_over(options_for_mistakes(climber, rung), 1));
    const FinishedRun right = climber.climb(rung, options);
    for (const Mistake mistake :
         {Mistake::kNormCountsCopies, Mistake::kOnlyLastMicrobatch, Mistake::kHalvedAlone}) {
      if (mistake == Mistake::kOnlyLastMicrobatch && !rung.sums_each_microbatch) continue;
      SCOPED_TRACE(concat(step, ", mistake ", static_cast<int>(mistake)));
      MistakenWorld mistaken(comm, mistake, options);
      options.output.out = climber.folder_for(step);
      const FinishedRun run = {step, rung.train(options, mistaken), options.output.out};
      climber.wait_for_all();
      if (climber.rank() != 0) continue;
      EXPECT_THAT(all_that_shows(rung, options, run, right, comm),
                  Contains(HasSubstr("step 1 of 2: the gradient norm is")));
    }
    // A cut that is silently flat has the same bits. What is held and sent tells.
    const FinishedRun flat = climber.climb(rung, cut_over(options, 0));
    if (climber.rank() == 0) {
      EXPECT_THAT(differences(flat, right), IsEmpty());
    }
    EXPECT_NE(flat.report.traffic,
              traffic_theory(rung, options, steps_of(flat.report), comm.size(), comm.rank()));
    EXPECT_NE(rung.state_bytes(options, comm.size(), 0),
              rung.state_bytes(cut_over(options, 0), comm.size(), 0));
  }
}

}  // namespace
}  // namespace ladder
