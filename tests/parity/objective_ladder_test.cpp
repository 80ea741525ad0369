// The objectives of step 8 on the parity ladder: a cut into stages changes no bit of any of them, a
// cut into microbatches and replicas nothing but rounding.
#include <ATen/ops/empty.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>

#include "common/core/check.hpp"
#include "common/core/memory_ledger.hpp"
#include "common/testing/closeness.hpp"
#include "common/testing/mpi_world.hpp"
#include "common/train/checkpoint.hpp"
#include "common/train/disk.hpp"
#include "common/train/safetensors.hpp"
#include "tests/parity/climber.hpp"

namespace ladder {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;

struct Kind {
  std::string name;
  ObjectiveOptions objective;
  std::int64_t docs_per_step = 0;
  bool has_reference = false;
  bool has_cache = false;
};

std::vector<Kind> kinds() {
  using enum ObjectiveKind;
  return {
      {.name = "lm up to 9 documents", .objective = {}, .docs_per_step = 9},
      {.name = "dpo", .objective = {.kind = kDpo}, .has_reference = true},
      {.name = "dpo over tokens, up to 9 pairs",
       .objective = {.kind = kDpo, .dpo = {.label_smoothing = 0.1, .unit = DpoUnit::kTokens}},
       .docs_per_step = 9,
       .has_reference = true},
      {.name = "dpo from a cache",
       .objective = {.kind = kDpo},
       .has_reference = true,
       .has_cache = true},
      {.name = "self_distillation",
       .objective = {.kind = kSelfDistillation, .distillation = {.prototypes = 5}}},
      {.name = "self_distillation over the batch",
       .objective = {.kind = kSelfDistillation,
                     .distillation = {.prototypes = 5, .scope = SinkhornScope::kBatch}}},
  };
}

// The numbers that an objective reports besides its loss.
std::size_t num_metrics(ObjectiveKind kind) {
  return kind == ObjectiveKind::kDpo ? 7 : kind == ObjectiveKind::kSelfDistillation ? 2 : 0;
}

class ObjectiveLadder : public ::testing::Test {
 protected:
  // Options for one of the kinds on so many stages; collective.
  TrainOptions options(const Kind& kind, int num_stages, std::int64_t num_microbatches = 4) {
    Configuration configuration;
    configuration.tie_embeddings = false;
    configuration.clip_norm = 0.5;
    configuration.rows = Rows::kDocuments;
    configuration.tail = Tail::kDrop;
    configuration.has_small_buckets = true;
    TrainOptions options = climber_.options(configuration);
    options.model.layers = 4;
    options.data.num_microbatches = kind.docs_per_step > 0 ? 1 : num_microbatches;
    options.pipeline.num_stages = num_stages;
    options.pipeline.docs_per_step = kind.docs_per_step;
    options.objective = kind.objective;
    if (kind.has_reference) {
      options.data.rows = Rows::kWindows;
      options.data.source = options.data.validation_source = pairs();
      options.objective.dpo.reference = reference();
      options.output.init_from = reference();
    }
    return options;
  }

  // Pairs with answers of different lengths, some too long for a row.
  std::string pairs(int count = 103, int first = 0) {
    const std::string path = climber_.folder_for("pairs") + ".jsonl";
    if (climber_.rank() == 0) {
      std::ofstream file(path);
      for (int i = first; i < first + count; ++i) {
        const auto length = static_cast<std::size_t>(i % 13);
        file << R"({"prompt": "sort )" << i * i << R"(", "chosen": ")" << std::string(length, 'a')
             << R"(b", "rejected": ")" << std::string(17 - length, 'b') << "a\"}\n";
      }
    }
    climber_.wait_for_all();
    return path;
  }

  // Exactly 12 samples, of different lengths.
  std::string twelve_samples(bool are_pairs) {
    if (are_pairs) return pairs(12);
    const std::string path = climber_.folder_for("twelve") + ".jsonl";
    if (climber_.rank() == 0) {
      std::ofstream file(path);
      for (int i = 0; i < 12; ++i) {
        file << R"({"question": ")" << std::string(static_cast<std::size_t>(i), 'x')
             << R"(", "answer": ")" << i * i << "\"}\n";
      }
    }
    climber_.wait_for_all();
    return path;
  }

  // A model that has learned something else for three steps; the same file for all tests of a test.
  const std::string& reference() {
    if (!reference_.empty()) return reference_;
    TrainOptions options = climber_.options({.num_microbatches = 4, .tie_embeddings = false});
    options.model.layers = 4;
    options.num_steps = 3;
    options.pipeline.num_stages = climber_.size();
    reference_ = climber_.climb(pipeline(), options).folder;
    climber_.wait_for_all();
    return reference_;
  }

  Climber climber_;
  std::string reference_;
};

TEST_F(ObjectiveLadder, StagesChangeNoBit) {
  const int size = climber_.size();
  for (const Kind& kind : kinds()) {
    const std::vector<int> cuts = size == 4 ? std::vector{4, 2} : std::vector{size};
    for (const int num_stages : cuts) {
      SCOPED_TRACE(concat(kind.name, ", ", num_stages, " stages on ", size, " ranks"));
      TrainOptions cut = options(kind, num_stages);
      if (kind.has_cache) cut.objective.dpo.cache = climber_.folder_for("cache");
      TrainOptions whole = cut;
      whole.pipeline = {
          .num_stages = 1, .schedule = Schedule::kGpipe, .docs_per_step = kind.docs_per_step};
      if (kind.has_cache) whole.objective.dpo.cache = climber_.folder_for("cache");
      const FinishedRun run = climber_.climb(pipeline(), cut);
      const FinishedRun wanted = climber_.climb_on(size / num_stages, pipeline(), whole);
      if (climber_.rank() != 0) continue;
      EXPECT_EQ(run.report.losses.size(), 12u);
      EXPECT_THAT(differences(run, wanted), IsEmpty());
      EXPECT_EQ(run.report.metrics, wanted.report.metrics);
      ASSERT_FALSE(run.report.val_losses.empty());
      const Metrics& validation = run.report.val_losses.back().metrics;
      EXPECT_EQ(validation, wanted.report.val_losses.back().metrics);
      const std::size_t own = num_metrics(kind.objective.kind);
      EXPECT_EQ(validation.size(), own);
      EXPECT_EQ(run.report.metrics.back().size(), own + (kind.docs_per_step > 0 ? 2 : 0));
    }
  }
  climber_.wait_for_all();
}

TEST_F(ObjectiveLadder, ACacheSaysWhatTheModelSays) {
  const Kind dpo = kinds()[1];
  TrainOptions from_model = options(dpo, climber_.size());
  from_model.data.validation_source = pairs(20, /*first=*/41);  // not what the training data hold
  TrainOptions from_cache = from_model;
  from_cache.objective.dpo.cache = climber_.folder_for("cache");
  const FinishedRun wanted = climber_.climb(pipeline(), from_model);
  const FinishedRun made = climber_.climb(pipeline(), from_cache);
  const FinishedRun read = climber_.climb(pipeline(), from_cache);
  if (climber_.rank() == 0) {
    EXPECT_THAT(differences(read, made), IsEmpty());
  }
  for (std::size_t i = 0; i < wanted.report.losses.size(); ++i)
    EXPECT_NEAR(made.report.losses[i], wanted.report.losses[i], 1e-5);
  for (std::size_t i = 0; i < wanted.report.val_losses.size(); ++i)
    EXPECT_NEAR(made.report.val_losses[i].loss, wanted.report.val_losses[i].loss, 1e-5);

  // Replicas that share the work write the same file as stages that do all of it together.
  TrainOptions by_replicas = from_cache;
  by_replicas.pipeline.num_stages = 1;
  by_replicas.objective.dpo.cache = climber_.folder_for("cache");
  by_replicas.num_steps = 1;
  climber_.climb(pipeline(), by_replicas);
  EXPECT_TRUE(read_text_file(by_replicas.objective.dpo.cache) ==
              read_text_file(from_cache.objective.dpo.cache));

  // Another model, and other data: refused by every rank.
  const auto message = [&](const TrainOptions& other) -> std::string {
    try {
      climber_.climb(pipeline(), other);
    } catch (const CheckError& error) {
      return error.what();
    }
    return "no error";
  };
  TrainOptions other_model = from_cache, other_data = from_cache, other_validation = from_cache;
  other_model.objective.dpo.reference = wanted.folder;
  EXPECT_THAT(message(other_model), HasSubstr("is stale: it was made for the model"));
  climber_.wait_for_all();
  other_data.data.source = pairs(99);
  EXPECT_THAT(message(other_data), HasSubstr("is stale: it was made for the training data"));
  climber_.wait_for_all();
  other_validation.data.validation_source = pairs(20);
  EXPECT_THAT(message(other_validation),
              HasSubstr("is stale: it was made for the validation data"));
  climber_.wait_for_all();
}

// A model that is its own reference gives every pair a margin of 0, which costs log 2 in each unit.
TEST_F(ObjectiveLadder, TheReferenceIsTheModelThatTheOptionsName) {
  TrainOptions named = options(kinds()[1], climber_.size());
  named.num_steps = 1;
  TrainOptions by_default = named, by_tokens = named, other = named;
  by_default.objective.dpo.reference = {};  // that of --init-from
  other.output.init_from = {};              // the model starts from its seed
  by_tokens.objective.dpo.unit = DpoUnit::kTokens;
  for (const TrainOptions& own : {named, by_default, by_tokens})
    EXPECT_NEAR(climber_.climb(pipeline(), own).report.losses[0], std::log(2.0), 1e-6);
  EXPECT_GT(std::abs(climber_.climb(pipeline(), other).report.losses[0] - std::log(2.0)), 1e-3);
  climber_.wait_for_all();
}

// The teacher starts as the student, and each step takes it a quarter of the way to what the step
// has made of the student.
TEST_F(ObjectiveLadder, TheTeacherFollowsTheStudent) {
  TrainOptions slow = options(kinds()[4], climber_.size());
  slow.objective.distillation.teacher_momentum = 0.75;
  slow.num_steps = 3;
  slow.output.save_every = 1;
  slow.output.keep = 0;
  slow.output.init_from = reference();
  const FinishedRun run = climber_.climb(pipeline(), slow);
  const auto read = [](const std::filesystem::path& file, const StoredTensor& stored,
                       const std::string& suffix = "") {
    const at::Tensor tensor = at::empty(stored.shape, stored.dtype);
    SafetensorsReader(file.string()).read(stored.name + suffix, tensor);
    return tensor;
  };
  if (climber_.rank() == 0) {
    const std::filesystem::path start = *newest_checkpoint(reference()) / "model.safetensors";
    const SafetensorsReader model(start.string());
    for (const StoredTensor& stored : model.tensors()) {
      at::Tensor teacher = read(start, stored);
      for (const int step : {1, 2, 3}) {
        SCOPED_TRACE(concat(stored.name, " after step ", step));
        const std::filesystem::path saved = concat(run.folder, "/checkpoints/step_00000", step);
        teacher = 0.75 * teacher + 0.25 * read(saved / "model.safetensors", stored);
        const at::Tensor found = read(saved / "optimizer.safetensors", stored, ".teacher");
        EXPECT_TRUE(close_in_norm(found, teacher, 1e-6));
      }
    }
  }
  climber_.wait_for_all();
}

// A view that is balanced by itself belongs to every prototype alike, whatever the teacher says.
TEST_F(ObjectiveLadder, OneSampleIsBalancedByItselfUnlessTheScopeIsTheBatch) {
  for (const SinkhornScope scope : {SinkhornScope::kMicrobatch, SinkhornScope::kBatch}) {
    TrainOptions sharp = options(kinds()[4], climber_.size());
    sharp.num_steps = 1;
    sharp.data.microbatch_size = 1;
    sharp.objective.distillation.scope = scope;
    TrainOptions soft = sharp;
    soft.objective.distillation.teacher_temperature = 1;
    const double difference = climber_.climb(pipeline(), sharp).report.losses[0] -
                              climber_.climb(pipeline(), soft).report.losses[0];
    if (scope == SinkhornScope::kMicrobatch) {
      EXPECT_NEAR(difference, 0, 1e-6);
    } else {
      EXPECT_GT(std::abs(difference), 1e-4);
    }
  }
  climber_.wait_for_all();
}

// A model that does not learn, and sees the same samples in every epoch: only the views are new.
TEST_F(ObjectiveLadder, EveryEpochHasItsOwnViews) {
  TrainOptions noisy = options(kinds()[5], climber_.size());
  noisy.num_steps = 3;
  noisy.output.eval_every = 1;
  noisy.lr = {.schedule = LrSchedule::kConstant, .lr = 0};
  noisy.objective.distillation.teacher_momentum = 1;
  noisy.data.order = SampleOrder::kSequential;
  noisy.data.source = twelve_samples(false);
  noisy.data.microbatch_size = 3;  // an epoch is a step of four microbatches
  TrainOptions plain = noisy, other_seed = noisy;
  plain.objective.distillation.view_noise = 0;
  other_seed.data.seed += 1;
  const TrainReport found = climber_.climb(pipeline(), noisy).report;
  const TrainReport same = climber_.climb(pipeline(), plain).report;
  const TrainReport other = climber_.climb(pipeline(), other_seed).report;
  for (const std::size_t step : {1u, 2u}) {
    EXPECT_EQ(same.losses[step], same.losses[0]);
    EXPECT_NE(found.losses[step], found.losses[step - 1]);
    EXPECT_EQ(found.val_losses[step].loss, found.val_losses[0].loss);
  }
  EXPECT_NE(other.losses[0], found.losses[0]);
  climber_.wait_for_all();
}

TEST_F(ObjectiveLadder, AResumedRunContinuesAsIfItHadNotStopped) {
  for (const Kind& kind : kinds()) {
    SCOPED_TRACE(kind.name);
    const int num_stages = climber_.size() == 4 ? 2 : climber_.size();
    TrainOptions all = options(kind, num_stages);
    all.lr.schedule = LrSchedule::kConstant;  // the decay would know the number of steps
    TrainOptions first = all, rest = all;
    first.num_steps = 5;
    const FinishedRun wanted = climber_.climb(pipeline(), all);
    rest.output.init_from = {};
    rest.output.resume = climber_.climb(pipeline(), first).folder;
    climber_.wait_for_all();
    const FinishedRun run = climber_.climb(pipeline(), rest);
    EXPECT_EQ(run.report.first_step, 5);
    for (std::size_t i = 0; i < run.report.losses.size(); ++i) {
      EXPECT_EQ(run.report.losses[i], wanted.report.losses[i + 5]) << i;
      EXPECT_EQ(run.report.metrics[i], wanted.report.metrics[i + 5]) << i;
    }
    EXPECT_EQ(run.report.param_hash, wanted.report.param_hash);
    climber_.wait_for_all();
  }
}

// Until all replicas together have 6 documents, 2 in each microbatch: 3 microbatches of one replica.
TEST_F(ObjectiveLadder, AFixedNumberOfDocumentsIsAFixedNumberOfMicrobatches) {
  const int num_replicas = climber_.size() == 4 ? 2 : 1;
  const Kind by_documents = {
      .name = "documents", .objective = {}, .docs_per_step = 6 * num_replicas};
  const int num_stages = climber_.size() / num_replicas;
  TrainOptions counted = options(by_documents, num_stages);
  TrainOptions fixed = options({.name = "fixed", .objective = {}}, num_stages, 3);
  if (num_stages > 3) return;
  const FinishedRun run = climber_.climb(pipeline(), counted);
  const FinishedRun wanted = climber_.climb(pipeline(), fixed);
  if (climber_.rank() == 0) {
    EXPECT_THAT(differences(run, wanted), IsEmpty());
    // They run in one flush, of which the first stage holds as many microbatches at a time.
    EXPECT_EQ(run.report.memory.peak(MemoryCategory::kActivations),
              wanted.report.memory.peak(MemoryCategory::kActivations));
  }
  climber_.wait_for_all();
}

// 12 samples as 1 x 12, 3 x 4, 12 x 1 and in unequal pieces, on any number of stages and replicas.
TEST_F(ObjectiveLadder, TheGradientIsTheSameHoweverTheBatchIsCut) {
  using enum ObjectiveKind;
  const std::vector<Kind> independent = {
      {.name = "lm", .objective = {}},
      {.name = "dpo", .objective = {.kind = kDpo}, .has_reference = true},
      {.name = "self_distillation over the batch",
       .objective = {.kind = kSelfDistillation,
                     .distillation = {.prototypes = 5, .scope = SinkhornScope::kBatch}}}};
  for (const Kind& kind : independent) {
    TrainOptions common = options(kind, 1);
    common.num_steps = 1;
    common.clip_norm = 0;
    common.optimizer.kind = OptimizerKind::kSgd;
    common.lr = {.schedule = LrSchedule::kConstant, .lr = 0.1};
    common.data.order = SampleOrder::kSequential;
    common.data.source = twelve_samples(kind.has_reference);
    TrainOptions alone = common;
    alone.data.microbatch_size = 12;
    alone.data.num_microbatches = 1;
    const FinishedRun wanted = climber_.climb_on(1, pipeline(), alone);
    const std::int64_t size = climber_.size();
    for (const std::int64_t num_replicas : {std::int64_t{1}, std::int64_t{2}, size}) {
      if (size % num_replicas != 0) continue;
      const std::int64_t num_stages = size / num_replicas, rows = 12 / num_replicas;
      for (const std::int64_t piece : {rows, std::int64_t{3}, std::int64_t{1}, std::int64_t{5}}) {
        const std::int64_t count = (rows + piece - 1) / piece;  // the last may be shorter
        if (count < num_stages) continue;
        for (const Schedule schedule : {Schedule::k1f1b, Schedule::kZeroBubble}) {
          TrainOptions cut = common;
          cut.data.microbatch_size = piece;
          cut.data.num_microbatches = count;
          cut.pipeline.num_stages = static_cast<int>(num_stages);
          cut.pipeline.schedule = schedule;
          SCOPED_TRACE(concat(kind.name, ": ", num_replicas, " replicas of ", num_stages,
                              " stages, ", count, " microbatches of up to ", piece, ", ",
                              to_string(schedule)));
          const FinishedRun run = climber_.climb(pipeline(), cut);
          if (climber_.rank() != 0) continue;
          EXPECT_EQ(run.report.units, wanted.report.units);
          EXPECT_NEAR(run.report.losses[0] / wanted.report.losses[0], 1, 2e-6);
          EXPECT_NEAR(run.report.grad_norms[0] / wanted.report.grad_norms[0], 1, 1e-5);
          EXPECT_NEAR(run.report.param_norms[0] / wanted.report.param_norms[0], 1, 1e-7);
        }
      }
    }
  }
  climber_.wait_for_all();
}

}  // namespace
}  // namespace ladder
