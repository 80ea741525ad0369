// Closed forms for the objectives of step 8's chapter. Runs that all have the same wrong reference,
// teacher or views equal each other, so a comparison of runs does not find it.
#include <ATen/ops/empty.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <optional>

#include "common/core/check.hpp"
#include "common/core/torch_types.hpp"
#include "common/testing/closeness.hpp"
#include "common/testing/expect_throws.hpp"
#include "common/train/checkpoint/checkpoint.hpp"
#include "common/train/checkpoint/disk.hpp"
#include "common/train/checkpoint/safetensors.hpp"
#include "step8_pipeline_ga/objectives/objective_options.hpp"
#include "step8_pipeline_ga/pipeline_options.hpp"
#include "tests/parity/objective_climber.hpp"

namespace ladder {
namespace {

namespace fs = std::filesystem;
using ::testing::IsEmpty;

class ObjectiveClosedForm : public ObjectiveClimber {
 protected:
  // A checkpoint of the reference without its parameters.
  std::string state_of_reference() {
    const fs::path checkpoint = checkpoint_in("the reference", reference());
    const std::string folder = climber_.folder_for("state");
    if (climber_.rank() == 0) {
      fs::create_directories(folder);
      fs::copy(checkpoint / "state.json", folder);
    }
    climber_.wait_for_all();
    return folder;
  }
};

// A model that is its own reference gives every pair a margin of 0, which costs log 2, per
// pair as per token.
TEST_F(ObjectiveClosedForm, TheReferenceIsTheModelThatTheOptionsName) {
  TrainOptions named = one_step(dpo());
  TrainOptions by_default = named, by_tokens = named, other = named;
  by_default.set<ObjectiveOptions>().dpo.reference = {};  // that of --init-from
  other.output.init_from = {};                            // the model starts from its seed
  by_tokens.set<ObjectiveOptions>().dpo.mean_over = DpoMeanOver::kTokens;
  for (const TrainOptions& own : {named, by_default, by_tokens})
    EXPECT_NEAR(climb(own).report.losses[0], std::log(2.0), 1e-6);
  EXPECT_GT(std::abs(climb(other).report.losses[0] - std::log(2.0)), 1e-3);
}

TEST_F(ObjectiveClosedForm, ACacheSaysWhatTheModelSays) {
  TrainOptions from_model = options(dpo(), climber_.size());
  from_model.data.validation_source = pairs(20, /*first=*/41);  // not what the training data hold
  TrainOptions from_cache = from_model;
  from_cache.set<ObjectiveOptions>().dpo.cache = climber_.folder_for("cache");
  const FinishedRun wanted = climb(from_model);
  const FinishedRun made = climb(from_cache);
  const FinishedRun read = climb(from_cache);
  if (climber_.rank() == 0) {
    EXPECT_THAT(differences(read, made), IsEmpty());
  }
  for (std::size_t i = 0; i < wanted.report.losses.size(); ++i)
    EXPECT_NEAR(made.report.losses[i], wanted.report.losses[i], 1e-5);
  for (std::size_t i = 0; i < wanted.report.val_losses.size(); ++i)
    EXPECT_NEAR(made.report.val_losses[i].loss, wanted.report.val_losses[i].loss, 1e-5);
}

// With a cache, nobody needs the reference's parameters.
TEST_F(ObjectiveClosedForm, OfACachedReferenceOnlyTheHashIsRead) {
  TrainOptions cached = one_step(dpo_from_cache());
  const FinishedRun made = climb(cached);
  cached.set<ObjectiveOptions>().dpo.reference = state_of_reference();
  EXPECT_EQ(climb(cached).report.losses, made.report.losses);
}

// Replicas share the work, stages do all of it together.
TEST_F(ObjectiveClosedForm, ReplicasWriteTheSameCacheAsStages) {
  TrainOptions by_stages = one_step(dpo_from_cache());
  TrainOptions by_replicas = by_stages;
  by_replicas.set<PipelineOptions>().num_stages = 1;
  by_replicas.set<ObjectiveOptions>().dpo.cache = climber_.folder_for("cache");
  climb(by_stages);
  climb(by_replicas);
  EXPECT_TRUE(read_text_file(by_replicas.set<ObjectiveOptions>().dpo.cache) ==
              read_text_file(by_stages.set<ObjectiveOptions>().dpo.cache));
}

// Refused by every rank.
TEST_F(ObjectiveClosedForm, ACacheOfAnotherModelOrOtherDataIsStale) {
  TrainOptions cached = one_step(dpo_from_cache());
  TrainOptions other_model = cached, other_data = cached, other_validation = cached;
  other_model.set<ObjectiveOptions>().dpo.reference = climb(cached).folder;
  other_data.data.source = pairs(36);
  other_validation.data.validation_source = pairs(20);
  const auto expect_stale = [&](const TrainOptions& other, const std::string& what) {
    expect_throws<CheckError>([&] { climb(other); }, {"is stale: its " + what + " is "});
    climber_.wait_for_all();
  };
  // Equal parameters say something else with other heads, and in another precision.
  TrainOptions other_heads = cached, other_precision = cached;
  other_heads.output.init_from = {};
  other_heads.model.heads = 4;
  other_precision.model.precision.params = NumberFormat::kBf16;
  expect_stale(other_heads, "--heads");
  expect_stale(other_precision, "--precision");
  expect_stale(other_model, "model");
  expect_stale(other_data, "training data");
  expect_stale(other_validation, "validation data");
}

at::Tensor stored_in(const fs::path& file, const StoredTensor& stored,
                     const std::string& suffix = "") {
  const at::Tensor tensor = at::empty(stored.shape, stored.dtype);
  SafetensorsReader(file.string()).read(stored.name + suffix, tensor);
  return tensor;
}

fs::path checkpoint_of(const FinishedRun& run, int step) {
  return concat(run.folder, "/checkpoints/step_00000", step);
}

// A bit of a value: neither the header nor the length tells.
TEST_F(ObjectiveClosedForm, ADamagedCacheIsRefused) {
  TrainOptions cached = one_step(dpo_from_cache());
  climb(cached);
  if (climber_.rank() == 0) {
    std::string bytes = read_text_file(cached.set<ObjectiveOptions>().dpo.cache);
    bytes.back() ^= 1;
    write_text_file(cached.set<ObjectiveOptions>().dpo.cache, bytes);
  }
  climber_.wait_for_all();
  expect_throws<CheckError>([&] { climb(cached); }, {"is damaged: its values hash to "});
}

// It fails before the reference is even read: here its parameters are missing.
TEST_F(ObjectiveClosedForm, WhereNoCacheCanBeMadeNothingIsScored) {
  TrainOptions cached = options(dpo_from_cache(), 1);
  cached.set<ObjectiveOptions>().dpo.reference = state_of_reference();
  const fs::path folder = climber_.folder_for("caches");
  if (climber_.rank() == 0) fs::create_directories(folder);
  const auto refused = [&](const std::string& name, const std::string& why) {
    cached.set<ObjectiveOptions>().dpo.cache = folder / name;
    const auto climb_alone = [&] { climber_.climb_on(1, pipeline_with_objectives(), cached); };
    if (climber_.rank() != 0) return climb_alone();
    expect_throws<CheckError>(climb_alone, {"--dpo-reference-cache", name, why});
    climber_.wait_for_all();
  };
  std::ofstream(folder / "file") << "";
  refused("file/pairs.safetensors", "cannot be created");
  std::optional<FolderLock> other_run;
  if (climber_.rank() == 0) other_run.emplace(folder / "pairs.safetensors.partial", "it");
  refused("pairs.safetensors", "is in use by process");

  cached.set<ObjectiveOptions>().dpo =
      options(dpo(), 1).get<ObjectiveOptions>().dpo;  // whose reference can be read
  cached.set<ObjectiveOptions>().dpo.cache = folder / "new" / "pairs.safetensors";
  cached.num_steps = 1;
  climber_.climb_on(1, pipeline_with_objectives(), cached);
  const std::vector<fs::path> made{fs::directory_iterator(folder / "new"), {}};
  EXPECT_EQ(made, std::vector<fs::path>{cached.set<ObjectiveOptions>().dpo.cache});
}

// A run's folder names its newest checkpoint, which changes when that run goes on.
TEST_F(ObjectiveClosedForm, AResumedRunKeepsItsReference) {
  TrainOptions first = one_step(dpo());
  TrainOptions rest = first;
  rest.num_steps = 2;
  rest.output.init_from = {};
  rest.output.resume = climb(first).folder;
  const fs::path old = checkpoint_in("the reference", reference());
  climber_.wait_for_all();
  if (climber_.rank() == 0) {
    fs::copy(checkpoint_in("the run", rest.output.resume), old.parent_path() / "step_000009",
             fs::copy_options::recursive);
  }
  climber_.wait_for_all();
  expect_throws<CheckError>(
      [&] { climb(rest); },
      {"was trained with the reference model " + describe_checkpoint(old).param_hash,
       describe_checkpoint(old.parent_path() / "step_000009").param_hash,
       "give --dpo-reference the checkpoint itself"});
  climber_.wait_for_all();
  rest.set<ObjectiveOptions>().dpo.reference = old;
  EXPECT_EQ(climb(rest).report.first_step, 1);
}

// As if their disks differed. Every stage by itself would read a good checkpoint.
TEST_F(ObjectiveClosedForm, RanksWithDifferentReferencesAreRefused) {
  TrainOptions options = one_step(dpo());
  const std::string other = climb(options).folder;
  if (climber_.rank() > 0) options.set<ObjectiveOptions>().dpo.reference = other;
  if (climber_.size() == 1) return;  // one rank has one
  expect_throws<CheckError>([&] { climb(options); }, {"hash of the reference model", "on rank 1"});
}

// The teacher starts as the student, and each step takes it a quarter of the way to what the step
// has made of the student. In 16 bits it follows the student's masters, not what they round to.
TEST_F(ObjectiveClosedForm, TheTeacherFollowsTheStudent) {
  TrainOptions slow = options(self_distillation(SinkhornScope::kMicrobatch), climber_.size());
  slow.set<ObjectiveOptions>().distillation.teacher_momentum = 0.75;
  slow.num_steps = 3;
  slow.output.save_every = 1;
  slow.output.keep = 0;
  slow.output.init_from = reference();
  slow.loss_scale.initial = 1024;
  for (const at::ScalarType type : {at::kFloat, at::kBFloat16, at::kHalf}) {
    slow.model.precision.params = format_of(type);
    const FinishedRun run = climb(slow);
    EXPECT_EQ(run.report.skipped_steps, 0);
    if (climber_.rank() != 0) continue;
    const fs::path start = *newest_checkpoint(reference()) / "model.safetensors";
    const SafetensorsReader model(start.string());
    for (const StoredTensor& stored : model.tensors()) {
      at::Tensor teacher = stored_in(start, stored);
      for (const int step : {1, 2, 3}) {
        SCOPED_TRACE(concat(stored.name, " in ", c10::toString(type), " after step ", step));
        const fs::path saved = checkpoint_of(run, step);
        teacher = 0.75 * teacher + 0.25 * stored_in(saved / "model.safetensors", stored);
        const at::Tensor found = stored_in(saved / "optimizer.safetensors", stored, ".teacher");
        EXPECT_TRUE(close_in_norm(found, teacher, 1e-6));
      }
    }
  }
}

// Two steps in fp32 part teacher and student; two more in fp16 overflow, and move neither.
TEST_F(ObjectiveClosedForm, ASkippedStepMovesNoTeacher) {
  TrainOptions first = options(self_distillation(SinkhornScope::kMicrobatch), climber_.size());
  first.num_steps = 2;
  const FinishedRun before = climb(first);
  climber_.wait_for_all();
  TrainOptions rest = first;
  rest.num_steps = 4;
  rest.model.precision.params = NumberFormat::kFp16;
  rest.loss_scale.initial = 0x1p30;
  rest.output.resume = before.folder;
  const FinishedRun after = climb(rest);
  EXPECT_EQ(after.report.skipped_steps, 2);
  if (climber_.rank() != 0) return;
  const auto file_of = [](const FinishedRun& run, int step) {
    return checkpoint_of(run, step) / "optimizer.safetensors";
  };
  const SafetensorsReader saved(file_of(before, 2).string());
  for (const StoredTensor& stored : saved.tensors()) {
    EXPECT_TRUE(
        bits_equal(stored_in(file_of(after, 4), stored), stored_in(file_of(before, 2), stored)))
        << stored.name;
  }
}

// A view that is balanced alone belongs to every prototype alike, whatever the teacher says: a step
// in which all are alone does not depend on the teacher's temperature. So no microbatch has one
// row.
TEST_F(ObjectiveClosedForm, NoSampleIsBalancedAlone) {
  TrainOptions whole = one_step(self_distillation(SinkhornScope::kBatch));
  whole.data.microbatch_size = 1;
  TrainOptions rest = options(self_distillation(SinkhornScope::kMicrobatch), 1, 2);
  rest.num_steps = 2;
  rest.data.source = documents(5 * climber_.size());  // of each replica: 2 and 2, and one is left
  for (TrainOptions sharp : {whole, rest}) {
    sharp.lr = {.schedule = LrSchedule::kConstant, .lr = 0};
    TrainOptions soft = sharp;
    soft.set<ObjectiveOptions>().distillation.teacher_temperature = 1;
    const std::vector<double> found = climb(sharp).report.losses, other = climb(soft).report.losses;
    for (std::size_t i = 0; i < found.size(); ++i)
      EXPECT_GT(std::abs(found[i] - other[i]), 1e-4) << "step " << i + 1;
  }
}

// A model that does not learn, and sees the same samples in every epoch: only the views are new.
// They depend on the seed, the model here does not.
TEST_F(ObjectiveClosedForm, EveryEpochHasItsOwnViews) {
  TrainOptions noisy = options(self_distillation(SinkhornScope::kBatch), climber_.size());
  noisy.num_steps = 3;
  noisy.output.eval_every = 1;
  noisy.output.init_from = reference();
  noisy.lr = {.schedule = LrSchedule::kConstant, .lr = 0};
  noisy.set<ObjectiveOptions>().distillation.teacher_momentum = 1;
  noisy.data.order = SampleOrder::kSequential;
  noisy.data.source = documents(12);
  noisy.data.microbatch_size = 3;  // an epoch is a step of four microbatches
  TrainOptions plain = noisy, other_seed = noisy;
  plain.set<ObjectiveOptions>().distillation.view_noise = 0;
  other_seed.seed += 1;
  const TrainReport found = climb(noisy).report;
  const TrainReport same = climb(plain).report;
  const TrainReport other = climb(other_seed).report;
  for (const std::size_t step : {1u, 2u}) {
    EXPECT_EQ(same.losses[step], same.losses[0]);
    EXPECT_NE(found.losses[step], found.losses[step - 1]);
    EXPECT_EQ(found.val_losses[step].loss, found.val_losses[0].loss);
  }
  EXPECT_NE(other.losses[0], found.losses[0]);
}

}  // namespace
}  // namespace ladder
