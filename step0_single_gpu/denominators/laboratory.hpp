// A small run that makes a mistake on purpose: a GPT on the built-in corpus, one document per row,
// padded, so that microbatches have unequal numbers of targets. Several ranks are played in one
// process.
//
// The rows of a step are sorted by length, as loaders do that group documents of similar length:
// microbatch 0 of rank 0 has the shortest documents, the last one of the last rank the longest.
#pragma once

#include <cstdint>
#include <vector>

#include "common/data/dataset.hpp"
#include "common/optim/optimizer.hpp"
#include "common/train/build_model.hpp"
#include "common/train/options/options.hpp"
#include "step0_single_gpu/denominators/mistakes.hpp"

namespace ladder::lab {

// How the rows of an optimizer step are cut. The same rows in another cut: the same product.
struct Cut {
  std::int64_t ranks = 2;
  std::int64_t flushes = 2;       // of each rank: --accumulation
  std::int64_t microbatches = 2;  // of each flush: --num-microbatches
  std::int64_t rows = 1;          // of each microbatch: --micro-batch-size
  std::int64_t num_microbatches() const { return ranks * flushes * microbatches; }
};

enum class Recipe {
  kSgd,           // plain SGD, no clipping, no weight decay: the raw gradient decides
  kClippedAdamW,  // AdamW, after clipping the gradient to norm 0.5
};
double clip_norm_of(Recipe recipe);  // 0: off

struct Experiment {
  Rows rows = Rows::kDocuments;
  Cut cut;
  Recipe recipe = Recipe::kSgd;
  std::int64_t num_steps = 30;
  std::uint64_t data_seed = 1;
  std::uint64_t model_seed = 1;
};

// The options of a trainer that trains like this.
TrainOptions options_of(const Experiment& experiment);

// A model, its gradients and its data, before the first step. From here on the process computes
// with one thread.
class Laboratory {
 public:
  explicit Laboratory(const Experiment& experiment);
  Laboratory(const Laboratory&) = delete;
  Laboratory& operator=(const Laboratory&) = delete;

  // The next optimizer step's microbatches. The few rows left at the end of an epoch are skipped.
  GlobalBatch next();
  Microbatches validation() const;

  const TrainOptions& options() const { return options_; }
  const LossSum& loss_sum() const { return loss_sum_; }
  FlatModel& flat() { return flat_; }
  FlatGradients& grads() { return grads_; }

 private:
  struct Corpus {  // the built-in one
    Dataset training, validation;
  };
  static const Corpus& corpus_of(Rows rows);

  Experiment experiment_;
  const Corpus& corpus_;
  TrainOptions options_;
  FlatModel flat_;
  Model model_;
  FlatGradients grads_;
  LossSum loss_sum_;
  std::vector<std::int64_t> order_;  // of the samples
  std::int64_t position_ = 0;        // in it
};

// What a run leaves behind. Losses are in nats per target token, or what the mistake makes of them.
struct Outcome {
  std::vector<double> losses, grad_norms, param_norms;  // per step; gradients before clipping
  std::vector<std::int64_t> target_tokens;              // per step
  std::vector<std::int64_t> microbatch_targets;  // of the first step: all of rank 0, then rank 1 …
  double val_loss = 0;                           // after the last step, as reported
  double true_val_loss = 0;                      // the same, with one denominator
  at::Tensor start, params;                      // before the first and after the last step
};

// Trains as `experiment` says, with this mistake.
Outcome train_with(Mistake mistake, const Experiment& experiment);

}  // namespace ladder::lab
