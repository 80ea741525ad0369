// Step 9 against the other steps and against its own definition, on as many workers as this program
// has ranks.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <nlohmann/json.hpp>
#include <utility>

#include "common/comm/forwarding_communicator.hpp"
#include "common/core/check.hpp"
#include "common/testing/rank_test.hpp"
#include "common/train/checkpoint/disk.hpp"
#include "step9_diloco/diloco_options.hpp"
#include "step9_diloco/diloco_plan.hpp"
#include "tests/parity/climber.hpp"
#include "tests/parity/straight_line_diloco.hpp"

namespace ladder {
namespace {

// An outer step that goes all the way: the average of the workers is the new global model.
DilocoOptions plain(std::int64_t sync_every, std::int64_t num_fragments = 1) {
  return {
      .sync_every = sync_every, .num_fragments = num_fragments, .outer_lr = 1, .outer_momentum = 0};
}

constexpr double kAny = std::numeric_limits<double>::infinity();

class DilocoLadder {
 protected:
  TrainOptions options(const DilocoOptions& diloco, int configuration = 1) {
    TrainOptions options =
        climber_.options(covering_set()[static_cast<std::size_t>(configuration)]);
    options.set<DilocoOptions>() = diloco;
    return options;
  }
  FinishedRun climb(const TrainOptions& options) { return climber_.climb(diloco(), options); }

  // It is the global model that step 9 validates, which lags behind.
  static void expect_near_validation(const FinishedRun& run, const FinishedRun& wanted) {
    ASSERT_EQ(run.report.val_losses.size(), 2u);
    for (std::size_t i = 0; i < 2; ++i)
      EXPECT_NEAR(run.report.val_losses[i].loss / wanted.report.val_losses[i].loss, 1, 1e-5);
  }

  static std::string checkpoint_of(const FinishedRun& run, std::int64_t step) {
    return concat(run.folder, "/checkpoints/step_0000", step < 10 ? "0" : "", step);
  }
  // The hash of the parameters in a file of the run's checkpoint of this step. On every rank.
  std::string saved_hash(const FinishedRun& run, std::int64_t step, const std::string& file) {
    climber_.wait_for_all();
    const std::string path = checkpoint_of(run, step) + "/state.json";
    const Json state = parse_json(read_text_file(path), path);
    return file.empty() ? state["param_hash"].get<std::string>()
                        : state["extra"]["files"][file].get<std::string>();
  }

  static std::vector<std::string> saved_files(int num_workers) {
    std::vector<std::string> files = {"outer.safetensors"};
    for (int w = 0; w < num_workers; ++w)
      for (const char* file : {"model", "optimizer"})
        files.push_back(concat("workers/", w, "/", file, ".safetensors"));
    return files;
  }

  Climber climber_;
};

TEST_ON_PROCESSES(DilocoLadder, OneWorkerWithAPlainOuterStepIsStep0) {
  for (const DilocoOptions& diloco_options : {plain(1), plain(6), plain(6, 3)}) {
    TrainOptions alone = options(diloco_options);
    const FinishedRun run = climber_.climb_on(1, diloco(), alone);
    if (climber_.rank() != 0) continue;
    const FinishedRun wanted = climber_.ask_oracle(alone, 1);
    expect_close(run, wanted, {.loss = 1e-6});
    if (diloco_options.num_fragments == 1) expect_near_validation(run, wanted);
  }
}

// The average of the parameters after one step of SGD is that step with the average of the
// gradients.
TEST_ON_PROCESSES(DilocoLadder, WithARoundAtEveryStepOfSgdItIsStep3) {
  for (const std::int64_t num_microbatches : {1, 3}) {
    TrainOptions sgd =
        climber_.options({.num_microbatches = num_microbatches, .optimizer = OptimizerKind::kSgd});
    sgd.optimizer.weight_decay = 0;
    sgd.set<DilocoOptions>() = plain(1);
    const FinishedRun run = climb(sgd), wanted = climber_.climb(rung_of("step3_naive_dp"), sgd);
    // Step 9's gradient norm is the mean of its workers'.
    expect_close(run, wanted, {.loss = 1e-5, .grad_norm = kAny, .param_norm = 1e-5});
    expect_near_validation(run, wanted);
  }
}

// In 16 bits the workers' masters are what is averaged; in fp16 each worker skips steps of its own.
TEST_ON_RANKS(DilocoLadder, EqualsItsDefinitionToTheBit) {
  struct Setting {
    DilocoOptions diloco;
    NumberFormat params = NumberFormat::kFp32;
    ModelFamily family = ModelFamily::kGpt2;
    int configuration = 4;  // 10: steps in which some workers, or all, have no target
  };
  constexpr auto llama = ModelFamily::kLlama, gpt2 = ModelFamily::kGpt2;
  for (const auto& [diloco_options, params, family, configuration] : std::vector<Setting>{
           {{.sync_every = 4}},
           {{.sync_every = 4}, NumberFormat::kFp32, gpt2, 10},
           {{.sync_every = 3, .sync_delay = 2}},
           {{.sync_every = 4, .num_fragments = 2, .sync_delay = 1}, NumberFormat::kFp32, llama},
           {{.sync_every = 6, .num_fragments = 3, .sync_delay = 1, .alpha = 0.25}},
           {{.sync_every = 2, .alpha = 1}},
           {{.sync_every = 4}, NumberFormat::kBf16},
           {{.sync_every = 4, .sync_delay = 1}, NumberFormat::kFp16},
           {{.sync_every = 6, .num_fragments = 3, .sync_delay = 1, .alpha = 0.25},
            NumberFormat::kBf16,
            llama}}) {
    SCOPED_TRACE(concat(diloco_options.num_fragments, " fragments, delay ",
                        diloco_options.sync_delay, ", alpha ", diloco_options.alpha, ", ",
                        format_name(params)));
    TrainOptions all = options(diloco_options, configuration);
    all.model.precision.params = params;
    all.model.family = family;
    all.model.kv_heads = family == llama ? 1 : 0;
    all.loss_scale = {.initial = 1 << 22, .window = 2};
    all.output.save_every = steps_per_round(diloco_options);
    all.output.keep = 0;
    all.output.sample = "line ";
    const FinishedRun run = climb(all);
    const StraightLine wanted = straight_line_diloco(all, climber_.size());
    EXPECT_EQ(run.report.losses, wanted.losses);
    ASSERT_EQ(run.report.val_losses.size(), wanted.val_losses.size());
    for (std::size_t i = 0; i < wanted.val_losses.size(); ++i)
      EXPECT_EQ(run.report.val_losses[i].loss, wanted.val_losses[i]);
    if (climber_.rank() == 0) {  // whose seed is that of the options
      EXPECT_EQ(run.report.sample, wanted.sample);
    }
    for (std::int64_t step = all.output.save_every; step <= 12; step += all.output.save_every) {
      EXPECT_EQ(saved_hash(run, step, ""), wanted.global_hashes[static_cast<std::size_t>(step - 1)])
          << step;
    }
    for (int w = 0; w < climber_.size(); ++w) {
      EXPECT_EQ(saved_hash(run, 12, concat("workers/", w, "/model.safetensors")),
                wanted.parameter_hashes[static_cast<std::size_t>(w)]);
    }
  }
}

// A run that was killed after any step goes on as if nothing had happened: at the end of a round,
// in the middle of one, and while an average is in flight, in fp32 or in fewer bytes. In fp16 also
// after a worker alone has skipped a step: its own inner optimizer has then taken fewer steps than
// the others'.
TEST_ON_RANKS(DilocoLadder, GoesOnFromACheckpointOfAnyStep) {
  for (const auto& [params, wire] : {std::pair{NumberFormat::kFp32, WireFormat::kInt8},
                                     {NumberFormat::kFp16, WireFormat::kFp32}}) {
    TrainOptions all = options(
        {.sync_every = 8, .num_fragments = 2, .sync_delay = 2, .alpha = 0.5, .wire = wire}, 4);
    all.model.precision.params = params;
    all.loss_scale = {.initial = 1 << 22, .window = 2};
    all.output.save_every = 1;
    all.output.keep = 0;
    const FinishedRun whole = climb(all);
    for (const std::int64_t step : {4, 5, 6, 7, 10}) {
      SCOPED_TRACE(concat(format_name(params), ", step ", step));
      climber_.wait_for_all();
      TrainOptions rest = all;
      rest.output.resume = checkpoint_of(whole, step);
      const FinishedRun run = climb(rest);
      EXPECT_EQ(run.report.first_step, step);
      EXPECT_EQ(run.report.losses,
                std::vector<double>(whole.report.losses.begin() + step, whole.report.losses.end()));
      EXPECT_EQ(run.report.param_hash, whole.report.param_hash);
      for (const std::string& file : saved_files(climber_.size()))
        EXPECT_EQ(saved_hash(run, 12, file), saved_hash(whole, 12, file)) << file;
    }
  }
}

// A group whose ranks are numbered backwards, or from another one on: each is another worker, and a
// transport that adds in one order of the ranks adds in another order of workers.
class ChangedPlaces : public ForwardingCommunicator {
 public:
  ChangedPlaces(std::unique_ptr<Communicator> inner, int place)
      : ForwardingCommunicator(std::move(inner)), place_(place) {}
  int rank() const override { return changed(inner_.rank()); }
  WorkPtr start(const Operation& operation) override {
    Operation inner = operation;
    inner.peer = changed(operation.peer);
    return inner_.start(inner);
  }

 private:
  int changed(int rank) const { return (place_ + size() - rank) % size(); }  // its own inverse
  int place_;
};

// Where sums are exact, a worker is its number, and with it its rows and its files in a checkpoint.
// Which rank is which worker changes no bit, also from the middle of a run on. Otherwise some places
// change bits, but not all: (x2 + x3) + (x0 + x1) is (x0 + x1) + (x2 + x3).
TEST_ON_PROCESSES(DilocoLadder, WorkersMayChangePlacesIfSumsAreExact) {
  Trainer rung = diloco();
  rung.starts_by_broadcast = false;  // all with the same seed, as worker 0 is on any rank
  const auto climb_from = [&](int place, const TrainOptions& options) {
    ChangedPlaces changed(test_world().comm().split(0, climber_.rank()), place);
    return climber_.climb(rung, options, changed);
  };
  for (const SumMode sums : {SumMode::kOrdered, SumMode::kExact}) {
    TrainOptions all = options(
        {.sync_every = 8, .num_fragments = 2, .sync_delay = 1, .alpha = 0.5, .outer_momentum = 0.5},
        4);
    all.gradient_sum = sums;
    all.output.save_every = 1;
    all.output.keep = 0;
    const FinishedRun first = climb_from(0, all);
    bool has_other_bits = false;
    for (int place = 1; place < climber_.size(); ++place) {
      SCOPED_TRACE(concat(sums == SumMode::kExact ? "exact" : "ordered", ", place ", place));
      const FinishedRun run = climb_from(place, all);
      has_other_bits |= run.report.param_hash != first.report.param_hash;
      if (sums == SumMode::kOrdered) continue;
      TrainOptions rest = all;
      rest.output.resume = checkpoint_of(first, 3 * place);  // 3: an average is in flight
      const FinishedRun resumed = climb_from(place, rest);
      EXPECT_EQ(run.report.losses, first.report.losses);
      EXPECT_EQ(run.report.grad_norms, first.report.grad_norms);
      EXPECT_EQ(run.report.param_norms, first.report.param_norms);
      EXPECT_EQ(run.report.val_losses.back().loss, first.report.val_losses.back().loss);
      for (const std::string& file : saved_files(climber_.size())) {
        EXPECT_EQ(saved_hash(run, 12, file), saved_hash(first, 12, file)) << file;
        EXPECT_EQ(saved_hash(resumed, 12, file), saved_hash(first, 12, file)) << file;
      }
    }
    EXPECT_EQ(has_other_bits, sums == SumMode::kOrdered && climber_.size() > 2);
  }
}

// Others see an ordinary checkpoint of the global parameters; step 9 goes on from theirs in
// parity_ladder_test. One worker less, from the middle of a round, has no use for the workers' files.
TEST_ON_PROCESSES(DilocoLadder, OtherReadersStartFromTheGlobalParameters) {
  TrainOptions all = options({.sync_every = 4, .sync_delay = 1, .alpha = 0.5});
  all.output.save_every = 6;
  all.output.keep = 0;
  const FinishedRun run = climb(all);
  climber_.wait_for_all();

  TrainOptions from = all, fewer = all;
  from.num_steps = 0;
  from.output.init_from = checkpoint_of(run, 6);
  EXPECT_EQ(climber_.climb(rung_of("step3_naive_dp"), from).report.param_hash,
            saved_hash(run, 6, ""));
  if (climber_.size() == 1) return;
  fewer.output.resume = checkpoint_of(run, 6);
  const FinishedRun with_fewer = climber_.climb_on(climber_.size() - 1, diloco(), fewer);
  if (climber_.rank() < climber_.size() - 1) {
    EXPECT_EQ(with_fewer.report.first_step, 6);
    EXPECT_EQ(with_fewer.report.losses.size(), 6u);
  }
}

}  // namespace
}  // namespace ladder
