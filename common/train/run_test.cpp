#include "common/train/run.hpp"

#include <ATen/ops/zeros.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>
#include <functional>
#include <limits>
#include <nlohmann/json.hpp>
#include <sstream>

#include "common/comm/self_communicator.hpp"
#include "common/core/check.hpp"
#include "common/core/torch_types.hpp"
#include "common/testing/expect_throws.hpp"
#include "common/testing/parse_options.hpp"
#include "common/testing/temp_folder.hpp"
#include "common/train/checkpoint/checkpoint.hpp"
#include "common/train/checkpoint/disk.hpp"
#include "common/train/start.hpp"

namespace ladder {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::ContainsRegex;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::UnorderedElementsAre;

// What a trainer holds, of a model of two numbers, and a run of it.
struct Training {
  Training(const TrainOptions& options, Communicator& comm)
      : flat({{"unit", {{"w", at::zeros({2}).set_requires_grad(true)}}}}),
        grads(flat),
        optimizer(flat, grads, options.optimizer),
        batches(options.data, whole_data(options.data.tail)),
        run(options, comm) {
    run.resume(state());
  }
  TrainState state() { return full_state(flat, optimizer, batches); }

  FlatModel flat;
  FlatGradients grads;
  Optimizer optimizer;
  BatchStream batches;
  ladder::Run run;
};

// All the bookkeeping, none of the training.
class RunTest : public ::testing::Test {
 protected:
  RunTest() {
    options_.data.source = folder_.write("text.txt", std::string(1000, 'x'));
    options_.output.is_quiet = true;
    options_.output.out = folder_.path("run");
    options_.output.log_every = 2;
    options_.num_steps = 5;
    finalize(options_);
  }

  // Takes steps whose loss is their number, until the run or the test (after `limit` steps) ends
  // it.
  TrainReport take_steps(const TrainOptions& options, int limit = 1000) {
    Training training(options, comm_);
    ladder::Run& run = training.run;
    double loss = 0;
    while (limit-- > 0 && run.next_step()) {
      training.optimizer.step(run.learning_rate());
      run.end_step({.loss = ++loss, .denominator = 10, .is_stop_requested = run.stop_requested()});
      if (run.should_save()) run.save(training.state());
      if (run.should_evaluate()) run.record_validation(0.5);
    }
    if (limit < 0) return {};  // as if killed
    run.finish(training.state());
    return run.report();
  }

  std::string path_of(const std::string& checkpoint) const {
    return fs::path(options_.output.out) / "checkpoints" / checkpoint;
  }

  std::vector<std::string> checkpoints() const {
    std::vector<std::string> names;
    for (const auto& entry : fs::directory_iterator(fs::path(options_.output.out) / "checkpoints"))
      names.push_back(entry.path().filename());
    return names;
  }

  std::vector<std::int64_t> logged_steps() const {
    std::vector<std::int64_t> steps;
    std::istringstream lines(read_text_file(fs::path(options_.output.out) / "metrics.jsonl"));
    for (std::string line; std::getline(lines, line);)
      steps.push_back(Json::parse(line)["step"].get<std::int64_t>());
    return steps;
  }

  SelfCommunicator comm_;
  TempFolder folder_;
  TrainOptions options_;
};

TEST_F(RunTest, LogsFirstEveryAndLastStepAndSavesTheEnd) {
  const TrainReport report = take_steps(options_);
  EXPECT_THAT(report.losses, ElementsAre(1, 2, 3, 4, 5));
  EXPECT_EQ(report.num_parameters, 2);
  EXPECT_EQ(report.param_hash.size(), 32u);
  EXPECT_THAT(logged_steps(), ElementsAre(1, 2, 4, 5));
  EXPECT_EQ(newest_checkpoint(options_.output.out)->filename(), "step_000005");
}

// As people expect beside the time of a step; the report has the mean of the run.
TEST_F(RunTest, ALineShowsTheSpeedSinceTheLineBefore) {
  const TrainReport report = take_steps(options_);
  std::istringstream lines(read_text_file(fs::path(options_.output.out) / "metrics.jsonl"));
  std::size_t taken = 0;
  for (std::string text; std::getline(lines, text);) {
    const Json line = Json::parse(text);
    double tokens = 0, seconds = 0;
    for (; taken < line["step"].get<std::size_t>(); ++taken) {
      tokens += 10;
      seconds += report.step_seconds[taken];
    }
    EXPECT_DOUBLE_EQ(line["tokens_per_second"].get<double>(), tokens / seconds) << text;
  }
  EXPECT_EQ(taken, 5u);
  const auto& all = report.step_seconds;
  EXPECT_DOUBLE_EQ(report.counted_per_second, 40 / (all[1] + all[2] + all[3] + all[4]));
}

// Only options from the command line are known to be UTF-8.
TEST_F(RunTest, ATextThatIsNotUtf8CostsNoRun) {
  options_.output.sample = "caf\xe9";
  take_steps(options_);
  const auto saved = describe_checkpoint(*newest_checkpoint(options_.output.out));
  EXPECT_EQ(saved.config["sample"], "caf\ufffd");
}

TEST_F(RunTest, WhatCannotBeSavedIsKnownBeforeTheFirstStep) {
  fs::create_directories(options_.output.out);
  options_.output.resume = "auto";
  std::ofstream(fs::path(options_.output.out) / "checkpoints") << "a file";
  expect_throws<CheckError>([&] { take_steps(options_, 1); }, {"run/checkpoints"});
  fs::remove(fs::path(options_.output.out) / "checkpoints");
  take_steps(options_, 1);  // killed after it: nothing but the log is there
  EXPECT_FALSE(fs::exists(fs::path(options_.output.out) / "checkpoints"));
}

TEST_F(RunTest, ZeroStepsSaveTheStart) {
  options_.num_steps = 0;
  EXPECT_TRUE(take_steps(options_).losses.empty());
  EXPECT_EQ(newest_checkpoint(options_.output.out)->filename(), "step_000000");
}

TEST_F(RunTest, AFolderInUseIsRefusedAndLeftAlone) {
  take_steps(options_);
  const std::string before = read_text_file(fs::path(options_.output.out) / "metrics.jsonl");
  EXPECT_THROW(take_steps(options_), CheckError);
  TrainOptions elsewhere = options_;
  elsewhere.output.resume = folder_.path("other");
  EXPECT_THROW(take_steps(elsewhere), CheckError);
  EXPECT_EQ(read_text_file(fs::path(options_.output.out) / "metrics.jsonl"), before);
}

TEST_F(RunTest, ResumeDropsLinesThatTheCheckpointDoesNotKnow) {
  options_.output.save_every = 2;
  options_.output.log_every = 1;
  take_steps(options_, 3);  // killed after step 3; saved after step 2
  EXPECT_THAT(logged_steps(), ElementsAre(1, 2, 3));
  std::ofstream(fs::path(options_.output.out) / "metrics.jsonl", std::ios::app)
      << "{\"step\": \"odd\"}\n{\"step\": 2, \"cut o";
  options_.output.resume = "auto";
  const TrainReport report = take_steps(options_);
  EXPECT_EQ(report.first_step, 2);
  EXPECT_THAT(report.losses, ElementsAre(1, 2, 3));
  EXPECT_THAT(logged_steps(), ElementsAre(1, 2, 3, 4, 5));
}

// The files are not what they were, though the options still name them.
TEST_F(RunTest, AResumedRunReportsDataThatHaveChanged) {
  const auto resumed = [&](const std::string& text, const std::string& validation_text) {
    folder_.write("text.txt", text);
    options_.data.validation_source = folder_.write("val.txt", validation_text);
    ::testing::internal::CaptureStdout();
    take_steps(options_);
    options_.output.is_quiet = false;
    options_.output.resume = "auto";
    ++options_.num_steps;
    return ::testing::internal::GetCapturedStdout();
  };
  const std::string text(1000, 'x'), validation_text(300, 'v');
  resumed(text, validation_text);
  const fs::path saved = fs::path(options_.output.out) / "checkpoints/step_000005/state.json";
  const Json contents = parse_json(read_text_file(saved), saved)["data"]["contents"];
  EXPECT_EQ(contents["training"]["samples"], 7);
  EXPECT_EQ(contents["training"]["tokens"], 1001);
  EXPECT_THAT(resumed(text, validation_text), Not(HasSubstr("training data")));
  EXPECT_THAT(resumed(text + "x", validation_text),
              AllOf(HasSubstr("unlike the run that saved it: "), HasSubstr("--steps 7 (was 6)"),
                    HasSubstr("training data 7 samples, 1002 tokens"),
                    HasSubstr("(was 7 samples, 1001 tokens"), Not(HasSubstr("validation"))));
  EXPECT_THAT(resumed(text + "y", "w" + validation_text.substr(1)),
              AllOf(HasSubstr("training data 7 samples, 1002 tokens"),
                    HasSubstr("validation data 2 samples, 301 tokens")));
}

TEST_F(RunTest, ResumeAutoWithoutACheckpointStartsFromTheBeginning) {
  options_.output.resume = "auto";
  EXPECT_EQ(take_steps(options_).first_step, 0);
  EXPECT_EQ(take_steps(options_).first_step, 5);  // and a finished run has nothing left to do
}

TEST_F(RunTest, ResumeBeyondTheEndOrFromNothingIsRefused) {
  take_steps(options_);
  options_.output.resume = "auto";
  options_.num_steps = 4;
  EXPECT_THROW(take_steps(options_), UsageError);
  options_.output.resume = folder_.path("nowhere");
  options_.output.out = folder_.path("new");
  EXPECT_THROW(take_steps(options_), CheckError);
}

TEST_F(RunTest, AnOlderCheckpointIsContinuedElsewhereAndLosesNothing) {
  options_.output.save_every = 1;
  options_.output.keep = 0;
  take_steps(options_);
  const fs::path older = fs::path(options_.output.out) / "checkpoints" / "step_000002";
  options_.output.resume = older;
  options_.output.keep = 1;
  EXPECT_THROW(take_steps(options_), CheckError);
  EXPECT_TRUE(fs::exists(older / "state.json"));
  EXPECT_THAT(logged_steps(), ElementsAre(1, 2, 4, 5));
  options_.output.out = folder_.path("elsewhere");
  EXPECT_EQ(take_steps(options_).first_step, 2);
  EXPECT_THAT(logged_steps(), ElementsAre(1, 2, 3, 4, 5)) << "with what led to the checkpoint";
  EXPECT_TRUE(fs::exists(older / "state.json"));
}

// The last checkpoint is kept besides, since no step has shown yet that it is good.
TEST_F(RunTest, KeepsTheNewestGoodCheckpoints) {
  options_.output.save_every = 1;
  options_.output.keep = 2;
  take_steps(options_);
  EXPECT_THAT(checkpoints(), UnorderedElementsAre("step_000003", "step_000004", "step_000005"));
  options_.num_steps = 6;
  options_.output.save_every = 0;
  options_.output.resume = "auto";
  take_steps(options_);
  EXPECT_THAT(checkpoints(), UnorderedElementsAre("step_000004", "step_000005", "step_000006"));
}

// As a worker of step 9 does whose state has been replaced by another worker's, of an earlier step.
TEST_F(RunTest, ARunThatGoesBackSavesAndResumesWhatIsNewer) {
  options_.output.save_every = 1;
  options_.output.log_every = 1;
  options_.output.keep = 4;
  for (const int num_steps_left : {1, 4}) {  // stopped on the way back to step 3, or at the end
    options_.output.out = folder_.path(concat("run", num_steps_left));
    options_.output.resume = "none";
    Training training(options_, comm_);
    ladder::Run& run = training.run;
    std::vector<std::int64_t> saved_steps;
    std::int64_t quorum = 1;
    const auto state = [&] {
      TrainState own = training.state();
      own.history = {7, quorum};
      return own;
    };
    const auto take_step = [&] {
      ASSERT_TRUE(run.next_step());
      run.end_step({.loss = 1, .denominator = 10});
      if (!run.should_save()) return;
      saved_steps.push_back(run.num_steps_taken());
      run.save(state());
    };
    for (int i = 0; i < 3; ++i) take_step();
    training.flat.params().add_(1);
    ++quorum;
    run.continue_from(1);
    for (int i = 0; i < num_steps_left; ++i) take_step();
    run.finish(state());
    if (num_steps_left == 1) {
      EXPECT_THAT(saved_steps, ElementsAre(1, 2, 3, 2));
      EXPECT_THAT(logged_steps(), ElementsAre(1, 2));
    } else {
      EXPECT_THAT(saved_steps, ElementsAre(1, 2, 3, 2, 3, 4, 5));
      EXPECT_THAT(logged_steps(), ElementsAre(1, 2, 3, 4, 5));
    }
    options_.output.resume = "auto";
    Training again(options_, comm_);
    EXPECT_EQ(again.run.num_steps_taken(), num_steps_left + 1);
    EXPECT_EQ(tensor_hash(again.state().parameters), tensor_hash(training.state().parameters));
  }
}

TEST_F(RunTest, ASignalSavesAndStops) {
  const StopSignal stop_signal;
  options_.num_steps = 1000000;
  options_.output.eval_every = 1;
  Training training(options_, comm_);
  ladder::Run& run = training.run;
  for (int step = 0; run.next_step(); ++step) {
    if (step == 3) std::raise(SIGUSR1);
    run.end_step({.denominator = 1, .is_stop_requested = run.stop_requested()});
    if (run.should_evaluate()) run.record_validation(step == 1 ? kStoppedLoss : 0.5);
  }
  run.finish(training.state());
  for (const int number : {SIGUSR1, SIGTERM, SIGINT, SIGINT, SIGINT}) std::raise(number);
  const TrainReport report = run.report();
  EXPECT_TRUE(report.was_stopped);
  EXPECT_EQ(report.losses.size(), 4u);
  EXPECT_EQ(report.val_losses.size(), 2u);  // nothing of steps 2 and 4
  EXPECT_EQ(newest_checkpoint(options_.output.out)->filename(), "step_000004");
}

// Steps 2 and 3 overflow: the optimizer leaves them out, and so does the schedule, also after a
// resume, in whatever precision.
TEST_F(RunTest, ASkippedStepMovesNeitherOptimizerNorSchedule) {
  options_.num_steps = 8;
  options_.lr = {.schedule = LrSchedule::kLinear, .lr = 1, .warmup_steps = 4};
  options_.model.precision.params = NumberFormat::kFp16;
  options_.loss_scale = {.initial = 1024, .window = 3};
  options_.output.save_every = 3;
  options_.output.keep = 0;
  options_.output.log_every = 1;
  const auto take = [&](const TrainOptions& options) {
    Training training(options, comm_);
    ladder::Run& run = training.run;
    std::vector<double> scales;  // of gradients
    const at::Tensor w = at::zeros({}).set_requires_grad(true);
    const auto loss = run.with_loss_scale(std::function<at::Tensor()>([&] { return w * 1; }));
    while (run.next_step()) {
      const std::int64_t step = run.num_steps_taken() + 1;
      const double norm = step == 2 || step == 3 ? std::numeric_limits<double>::infinity() : 1;
      w.mutable_grad().reset();
      loss().backward();
      scales.push_back(w.grad().item<double>());
      EXPECT_EQ(run.loss_scale(), scales.back());
      if (run.decide_step({norm, 0})) training.optimizer.step(run.learning_rate());
      run.end_step({.loss = 1, .grad_norm = norm, .denominator = 1});
      if (run.should_save()) run.save(training.state());
    }
    run.finish(training.state());
    EXPECT_EQ(training.optimizer.num_steps(), 6);
    return std::pair{run.report(), scales};
  };
  const auto resumed = [&](const std::string& from, const std::string& out, at::ScalarType type) {
    TrainOptions again = options_;
    again.output.out = folder_.path(out);
    again.output.resume = folder_.path(from);
    again.model.precision.params = format_of(type);
    return take(again);
  };
  const auto [whole, scales] = take(options_);
  EXPECT_THAT(whole.learning_rates, ElementsAre(.25, .5, .5, .5, .75, 1, 1, .75));
  EXPECT_THAT(scales, ElementsAre(1024, 1024, 512, 256, 256, 256, 512, 512));
  EXPECT_EQ(whole.skipped_steps, 2);
  const auto [rest, later_scales] = resumed("run/checkpoints/step_000003", "again", at::kHalf);
  EXPECT_THAT(rest.learning_rates, ElementsAre(.5, .75, 1, 1, .75));
  EXPECT_THAT(later_scales, ElementsAre(256, 256, 256, 512, 512));
  EXPECT_EQ(rest.skipped_steps, 0);
  const auto [in_bf16, no_scales] = resumed("run/checkpoints/step_000003", "bf16", at::kBFloat16);
  EXPECT_EQ(in_bf16.learning_rates, rest.learning_rates);
  EXPECT_THAT(no_scales, Each(1));
  const auto [back, last_scales] = resumed("bf16/checkpoints/step_000006", "back", at::kHalf);
  EXPECT_THAT(back.learning_rates, ElementsAre(1, .75));
  EXPECT_THAT(last_scales, ElementsAre(256, 256));
  const std::string log = read_text_file(fs::path(options_.output.out) / "metrics.jsonl");
  options_.loss_scale.initial = 4096;  // which the checkpoint's own scale replaces
  options_.output.is_quiet = false;
  ::testing::internal::CaptureStdout();
  const auto same_scales = resumed("run/checkpoints/step_000003", "other", at::kHalf).second;
  EXPECT_EQ(same_scales, later_scales);
  const std::string said = ::testing::internal::GetCapturedStdout();
  EXPECT_THAT(
      said, HasSubstr("the loss scale goes on at 256: --loss-scale 4096 is for a run that begins"));
  EXPECT_THAT(said, Not(HasSubstr("unlike the run that saved it")));
  EXPECT_THAT(log, HasSubstr("\"loss_scale\":512"));
  EXPECT_THAT(log, HasSubstr("\"grad_norm\":null"));
}

TEST_F(RunTest, ARunThatOverflowsForEverIsAnError) {
  options_.num_steps = 100;
  options_.model.precision.params = NumberFormat::kFp16;
  ladder::Run run(options_, comm_);
  expect_throws<CheckError>(
      [&] {
        while (run.next_step()) {
          run.decide_step({std::numeric_limits<double>::quiet_NaN(), 0});
          run.end_step({.loss = 1, .grad_norm = std::numeric_limits<double>::quiet_NaN()});
        }
      },
      {"loss scale of 1"});
  EXPECT_EQ(run.num_steps_taken(), 16);
}

TEST_F(RunTest, EvaluatesEverySoOftenAndAtTheEnd) {
  options_.output.eval_every = 2;
  const TrainReport report = take_steps(options_);
  ASSERT_EQ(report.val_losses.size(), 3u);
  EXPECT_EQ(report.val_losses[0].step, 2);
  EXPECT_EQ(report.val_losses[2].step, 5);
}

// A row of 4 targets: three of a byte each, and the end of the text.
TEST_F(RunTest, EvaluatesPerByteOfTextToo) {
  options_.data.validation_source = folder_.write("val.txt", "abcd");
  options_.model.context = 4;
  options_.output.eval_every = 5;
  finalize(options_);
  const TrainReport report = take_steps(options_);
  ASSERT_EQ(report.val_losses.size(), 1u);
  EXPECT_EQ(report.val_losses[0].nats_per_byte, 0.5 * 4 / 3);
  const std::string lines = read_text_file(fs::path(options_.output.out) / "metrics.jsonl");
  EXPECT_THAT(lines, HasSubstr("\"val_nats_per_byte\":0.66"));

  options_.set<GivenShape>() = {{.mean_over = "pairs"}};
  options_.output.out = folder_.path("pairs");
  EXPECT_FALSE(take_steps(options_).val_losses[0].nats_per_byte.has_value());
}

// The two numbers fit, as a real model's would: no shape tells its heads.
TEST_F(RunTest, AModelWithOtherHeadsIsNeitherResumedNorStartedFrom) {
  take_steps(options_);
  TrainOptions other = options_;
  other.model.heads = 2;
  other.output.out = folder_.path("other");
  other.start = std::make_shared<const Start>(options_.output.out);  // finalize() would refuse it
  for (std::string* from : {&other.output.init_from, &other.output.resume}) {
    const std::string before = std::exchange(*from, options_.output.out);
    expect_throws<CheckError>([&] { take_steps(other); }, {"--heads 4", "--heads 2"});
    *from = before;
  }
}

TEST_F(RunTest, WithoutAFolderNothingIsWritten) {
  options_.output.out.clear();
  EXPECT_EQ(take_steps(options_).param_hash.size(), 32u);
  EXPECT_EQ(std::distance(fs::directory_iterator(folder_.path()), {}), 1);  // the text
}

TEST_F(RunTest, ANonFiniteValueEndsTheRunBeforeItIsSaved) {
  constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
  constexpr double kInf = std::numeric_limits<double>::infinity();
  options_.output.save_every = 1;
  options_.output.keep = 1;
  take_steps(options_, 2);
  options_.output.resume = "auto";
  const std::vector<std::pair<StepRecord, const char*>> cases = {
      {{.loss = kNan, .grad_norm = kNan, .param_norm = kNan}, "the loss is not finite"},
      {{.loss = -kInf}, "the loss is not finite"},
      {{.grad_norm = kInf}, "the gradient norm is not finite"},
      {{.param_norm = kNan}, "the parameter norm is not finite"}};
  for (const auto& [record, why] : cases) {
    Training training(options_, comm_);
    ASSERT_TRUE(training.run.next_step());
    expect_throws<CheckError>(
        [&] {
          training.run.end_step(record);
          training.run.save(training.state());  // as the loop would
        },
        {why, "step 3:", "--lr", "step_000002"});
    EXPECT_EQ(newest_checkpoint(options_.output.out)->filename(), "step_000002");
    const std::string log = read_text_file(fs::path(options_.output.out) / "metrics.jsonl");
    EXPECT_THAT(log, HasSubstr(concat("{\"step\":3,\"diverged\":\"", why, "\",\"time\":")));
  }
  EXPECT_EQ(take_steps(options_).first_step, 2);  // and goes on from it
  EXPECT_THAT(read_text_file(fs::path(options_.output.out) / "metrics.jsonl"),
              Not(HasSubstr("diverged")));
}

// What was saved after the update that ruined it is not what --resume auto continues.
TEST_F(RunTest, ACheckpointIsGoodOnceTheNextStepWasFinite) {
  constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
  options_.output.save_every = 1;
  options_.output.keep = 1;
  const auto diverge = [&](const StepRecord& last) -> std::string {
    Training training(options_, comm_);
    try {
      for (int i = 0; i < 3; ++i) {
        EXPECT_TRUE(training.run.next_step());
        training.run.end_step(i == 2 ? last : StepRecord{.loss = 1});
        training.run.save(training.state());
      }
    } catch (const CheckError& error) {
      return error.what();
    }
    return "";
  };
  // The gradient was that of the saved state; its update was not finite.
  EXPECT_THAT(diverge({.param_norm = kNan}), EndsWith("checkpoint is " + path_of("step_000002")));
  EXPECT_THAT(checkpoints(), UnorderedElementsAre("step_000001", "step_000002"));
  for (const StepRecord& last : {StepRecord{.loss = kNan}, StepRecord{.grad_norm = kNan}}) {
    fs::remove_all(options_.output.out);
    EXPECT_THAT(diverge(last), AllOf(HasSubstr("it is now " + path_of("diverged_000002")),
                                     EndsWith("good checkpoint is " + path_of("step_000001"))));
    EXPECT_THAT(checkpoints(), UnorderedElementsAre("step_000001", "diverged_000002"));
  }
  options_.output.resume = "auto";
  take_steps(options_, 2);  // 2 and 3, then killed
  EXPECT_THAT(checkpoints(), UnorderedElementsAre("step_000002", "step_000003", "diverged_000002"));
  // Another part of the run has saved step 3, perhaps with other options: it stays.
  Training training(options_, comm_);
  ASSERT_TRUE(training.run.next_step());
  expect_throws<CheckError>(
      [&] { training.run.end_step(StepRecord{.loss = kNan}); },
      {"began with " + path_of("step_000003"), "good checkpoint is " + path_of("step_000002")});
  EXPECT_THAT(checkpoints(), UnorderedElementsAre("step_000002", "step_000003", "diverged_000002"));
}

// Steps that fp16 skips show nothing: the last good checkpoint stays.
TEST_F(RunTest, ASkippedStepDoesNotProveACheckpoint) {
  options_.num_steps = 100;
  options_.model.precision.params = NumberFormat::kFp16;
  options_.loss_scale = {.initial = 4};
  options_.output.save_every = 1;
  options_.output.keep = 1;
  Training training(options_, comm_);
  const auto take_step = [&](double norm) {
    ASSERT_TRUE(training.run.next_step());
    training.run.decide_step({norm, 0});
    training.run.end_step({.loss = 1, .grad_norm = norm});
    training.run.save(training.state());
  };
  constexpr double kInf = std::numeric_limits<double>::infinity();
  for (const double norm : {1., 1., kInf, kInf}) take_step(norm);
  EXPECT_THAT(checkpoints(), UnorderedElementsAre("step_000001", "step_000004"));
  EXPECT_THROW(take_step(kInf), CheckError);  // at a scale of 1
  EXPECT_THAT(checkpoints(), UnorderedElementsAre("step_000001", "diverged_000004"));
}

// The step that warms up says nothing of the others.
TEST_F(RunTest, ShowsTheDataAndKnowsTheTimeLeftFromTheSecondStepOn) {
  options_.output.is_quiet = false;
  ::testing::internal::CaptureStdout();
  take_steps(options_);
  EXPECT_THAT(::testing::internal::GetCapturedStdout(),
              AllOf(HasSubstr("  7 samples, 1001 tokens: 5 steps take 2.5714 epochs\n"),
                    ContainsRegex("step 1/5 .*tokens/s\n"), ContainsRegex("step 2/5 .* left\n"),
                    Not(HasSubstr("ignored"))));
}

TEST_F(RunTest, SaysWhichMembersOfTheDataItIgnores) {
  options_.output.is_quiet = false;
  options_.data.source = folder_.write("text.jsonl", "{\"text\": \"xxxxxxxxxx\", \"id\": 1}\n");
  options_.data.validation_source =
      folder_.write("val.jsonl", "{\"text\": \"xxxx\", \"url\": \"y\"}");
  options_.data.context = 4;
  ::testing::internal::CaptureStdout();
  const Training training(options_, comm_);
  EXPECT_THAT(::testing::internal::GetCapturedStdout(),
              HasSubstr("ignored             members of the data's lines that say nothing here: "
                        "id, url\n"));
}

}  // namespace
}  // namespace ladder
