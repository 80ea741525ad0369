// What a model is trained for.
#pragma once

#include <cstdint>
#include <string>

#include "common/train/options/step_options.hpp"

namespace ladder {

enum class ObjectiveKind { kLanguageModel, kDpo, kSelfDistillation };

// What DPO's loss is a mean over: pairs; or answer tokens, where a pair counts by the number of its own.
enum class DpoMeanOver { kPairs, kTokens };

// The samples over which a teacher's assignment is balanced: those of each microbatch, or those of
// the whole optimizer step on all replicas.
enum class SinkhornScope { kMicrobatch, kBatch };

struct DpoOptions {
  double beta = 0.1;           // how strongly the model is held to the reference
  double label_smoothing = 0;  // the share of pairs presumed to be labeled the wrong way round
  DpoMeanOver mean_over = DpoMeanOver::kPairs;
  std::string reference = {};  // a checkpoint: the frozen model; empty: that of --init-from
  std::string cache = {};      // a file of the reference's log-probabilities; empty: none
};

struct DistillationOptions {
  std::int64_t prototypes = 32;  // K, the first outputs of the model's head
  double student_temperature = 0.1;
  double teacher_temperature = 0.02;
  double teacher_momentum = 0.99;  // what a teacher keeps of itself in each optimizer step
  double view_noise = 0.3;         // the share of tokens that a view replaces by random ones
  SinkhornScope scope = SinkhornScope::kMicrobatch;
};

// What dpo_loss_sum() adds up, in order; and the means that they make: accuracy (the share of pairs
// whose chosen answer has the higher reward), ranking accuracy (the higher log-probability,
// whatever the reference says), margin, rewards, log-probabilities and answer tokens per pair. A
// model that equals its reference has an accuracy of 0: no reward is higher.
enum DpoSum {
  kPairSum,
  kAccurateSum,
  kRankedSum,
  kChosenRewardSum,
  kRejectedRewardSum,
  kChosenLogProbSum,
  kRejectedLogProbSum,
  kAnswerTokenSum,
  kNumDpoSums
};

struct ObjectiveOptions {
  ObjectiveKind kind = ObjectiveKind::kLanguageModel;
  DpoOptions dpo;
  DistillationOptions distillation;

  void declare(OptionTable& table);
  void finalize(TrainOptions& options);
  void shape_batch(BatchShape& batch) const;
};

}  // namespace ladder
