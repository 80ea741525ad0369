#include "step8_pipeline_ga/objectives/objective_options.hpp"

#include "common/train/options/option_table.hpp"

namespace ladder {
namespace {

constexpr const char* kForDpo = "--objective dpo";
bool is_dpo(const TrainOptions& options) {
  return options.get<ObjectiveOptions>().kind == ObjectiveKind::kDpo;
}

constexpr const char* kForDistillation = "--objective self_distillation";
bool is_distillation(const TrainOptions& options) {
  return options.get<ObjectiveOptions>().kind == ObjectiveKind::kSelfDistillation;
}

}  // namespace

void ObjectiveOptions::declare(OptionTable& table) {
  table.heading("Objective");
  table.choice("--objective", kind,
               {{"lm", ObjectiveKind::kLanguageModel},
                {"dpo", ObjectiveKind::kDpo},
                {"self_distillation", ObjectiveKind::kSelfDistillation}},
               "next token; pairs of a better and a worse answer; or agreement with a teacher");
  table.number("--dpo-beta", dpo.beta, kPositive, "how strongly the model is held to the reference")
      .only(kForDpo, is_dpo);
  table
      .number("--dpo-label-smoothing", dpo.label_smoothing, {0, 0.5},
              "share of pairs presumed to be labeled the wrong way round, 0 to 0.5")
      .only(kForDpo, is_dpo);
  table
      .choice("--dpo-mean-over", dpo.mean_over,
              {{"pairs", DpoMeanOver::kPairs}, {"tokens", DpoMeanOver::kTokens}},
              "the loss is a mean over pairs; or over answer tokens, where a pair counts by the "
              "number of its own")
      .only(kForDpo, is_dpo);
  table
      .value("--dpo-reference", dpo.reference,
             "checkpoint, or Hugging Face folder, of the frozen model to compare with, the same in "
             "every part of a run that is resumed; default: that of --init-from")
      .only(kForDpo, is_dpo);
  table
      .value("--dpo-reference-cache", dpo.cache,
             "file that keeps the frozen model's log-probabilities: computed once for all pairs, "
             "then read")
      .only(kForDpo, is_dpo)
      .changes_no_bits();
  table
      .number("--prototypes", distillation.prototypes, {2, kMostTokenIds},
              "K: the model's first K outputs, averaged over positions, score a sample")
      .only(kForDistillation, is_distillation);
  table
      .number("--student-temperature", distillation.student_temperature, kPositive,
              "divides the student's scores")
      .only(kForDistillation, is_distillation);
  table
      .number("--teacher-temperature", distillation.teacher_temperature, kPositive,
              "divides the teacher's scores before they are balanced")
      .only(kForDistillation, is_distillation);
  table
      .number("--teacher-momentum", distillation.teacher_momentum, kShare,
              "what the teacher keeps of itself in each optimizer step, 0 to 1")
      .only(kForDistillation, is_distillation);
  table
      .number("--view-noise", distillation.view_noise, kShare,
              "share of tokens that each view replaces by random ones, 0 to 1")
      .only(kForDistillation, is_distillation);
  table
      .choice("--sinkhorn-scope", distillation.scope,
              {{"microbatch", SinkhornScope::kMicrobatch}, {"batch", SinkhornScope::kBatch}},
              "samples over which the teacher's assignment is balanced: a microbatch, of two "
              "samples or more (an epoch's last one is left out if it would be alone); or a whole "
              "step")
      .only(kForDistillation, is_distillation);
}

void ObjectiveOptions::finalize(TrainOptions& options) {
  check_usage(
      kind == ObjectiveKind::kLanguageModel || options.gradient_sum == SumMode::kOrdered,
      "--gradient-sum exact does not go with --objective: only the next token's microbatches can "
      "be dealt whole");
  check_usage(distillation.prototypes <= options.model.vocab_size, "--prototypes is ",
              distillation.prototypes, ", it must be at most the size of the vocabulary, which is ",
              options.model.vocab_size);
  check_usage(
      kind != ObjectiveKind::kSelfDistillation ||
          distillation.scope != SinkhornScope::kMicrobatch || options.data.microbatch_size != 1,
      "--micro-batch-size 1 with --sinkhorn-scope microbatch: a sample that is balanced "
      "alone belongs to every prototype alike, and teaches nothing; take --micro-batch-size "
      "2 or more, or --sinkhorn-scope batch");
  if (kind != ObjectiveKind::kDpo) return;
  check_usage(!dpo.reference.empty() || !options.output.init_from.empty(),
              "--objective dpo compares with a frozen model, and neither --dpo-reference nor "
              "--init-from names one: give --dpo-reference, a checkpoint or a folder");
  check_usage(options.data.rows == Rows::kWindows,
              "--rows documents is not for --objective dpo, whose rows are the answers of pairs; "
              "leave it out");
}

void ObjectiveOptions::shape_batch(BatchShape& batch) const {
  if (kind == ObjectiveKind::kLanguageModel) return;
  batch.rows_per_sample = 2;  // a pair's two answers, or a sample's two views
  batch.mean_over = "samples";
  if (kind == ObjectiveKind::kSelfDistillation) return;
  batch.rows = Rows::kPairs;
  batch.mean_over = dpo.mean_over == DpoMeanOver::kPairs ? "pairs" : "answer tokens";
}

}  // namespace ladder
