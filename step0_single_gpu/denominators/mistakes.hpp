// Five ways to divide by the wrong number, next to the right one. All of them run, and all of them
// train.
//
// An optimizer step has microbatches j with n_j targets, summed losses S_j and gradients
// G_j = ∇S_j. With n = Σ n_j, the gradient of the mean loss per target is Σ G_j / n. Each mistake
// gives the microbatches other weights than 1/n; README.md has the algebra.
#pragma once

#include <optional>
#include <string_view>
#include <vector>

#include "common/data/batch.hpp"
#include "common/optim/flat_model.hpp"
#include "step0_single_gpu/objective.hpp"

namespace ladder::lab {

enum class Mistake {
  kNone,
  kMeanOfMeans,      // each microbatch is divided by its own number of targets
  kScaledAgain,      // what has been accumulated is divided once more after each flush
  kValidationMeans,  // the validation loss is a mean of means; training is right
  kLocalWeights,     // each rank divides by its own number of targets; the reported loss is right
  kPadding,          // positions without a target are counted, in training and in validation
};

inline constexpr Mistake kAllMistakes[] = {Mistake::kNone,         Mistake::kMeanOfMeans,
                                           Mistake::kScaledAgain,  Mistake::kValidationMeans,
                                           Mistake::kLocalWeights, Mistake::kPadding};

// "right", "mean-of-means", "scaled-again", "validation-means", "local-weights", "padding".
const char* name_of(Mistake mistake);
std::optional<Mistake> mistake_named(std::string_view name);

// The rows of one optimizer step: the microbatches of each rank's flushes, [rank][flush]. All
// ranks have equally many flushes, and all flushes equally many microbatches.
using GlobalBatch = std::vector<std::vector<Microbatches>>;

// The targets of all ranks, flushes and microbatches: n.
std::int64_t num_targets(const GlobalBatch& batch);

// Leaves the step's gradient in `grads`, summed over the ranks, and returns the loss that the run
// reports: both as this mistake makes them. Throws CheckError if there are no targets.
double accumulate(Mistake mistake, const LossSum& loss_sum, const GlobalBatch& batch,
                  FlatGradients& grads);

// The validation loss that the run reports.
double evaluate(Mistake mistake, const LossSum& loss_sum, const Microbatches& batches);

}  // namespace ladder::lab
