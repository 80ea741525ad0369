#include "step0_single_gpu/denominators/mistakes.hpp"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/zeros_like.h>

#include <utility>

#include "common/core/check.hpp"
#include "step0_single_gpu/accumulate_gradients.hpp"
#include "step0_single_gpu/evaluate.hpp"

namespace ladder::lab {
namespace {

using Flushes = std::vector<Microbatches>;  // of one rank

// Plays the ranks one after the other: each accumulates its own gradient, then they are summed.
// of_rank(flushes) adds to `grads` and returns the rank's part of the reported loss.
template <class OfRank>
double sum_over_ranks(const GlobalBatch& batch, FlatGradients& grads, OfRank of_rank) {
  const at::Tensor sum = at::zeros_like(grads.flat());
  double loss = 0;
  for (const Flushes& flushes : batch) {
    grads.zero();
    loss += of_rank(flushes);
    sum.add_(grads.flat());
  }
  grads.flat().copy_(sum);
  return loss;
}

double targets_of(const Flushes& flushes) {
  std::int64_t sum = 0;
  for (const Microbatches& flush : flushes) sum += flush.num_targets();
  return static_cast<double>(sum);
}

// Everything is divided by the same number: the right one, or another.
double one_denominator(const LossSum& loss_sum, const GlobalBatch& batch, FlatGradients& grads,
                       double denominator) {
  return sum_over_ranks(batch, grads, [&](const Flushes& flushes) {
    double loss = 0;
    for (const Microbatches& flush : flushes)
      loss += accumulate_gradients(loss_sum, flush, denominator);
    return loss;
  });
}

// As cross_entropy(reduction="mean") and loss / (accumulation · microbatches) do. A microbatch that
// is all padding has no mean: 0/0.
double mean_of_means(const LossSum& loss_sum, const GlobalBatch& batch, FlatGradients& grads) {
  return sum_over_ranks(batch, grads, [&](const Flushes& flushes) {
    const auto count = static_cast<double>(batch.size() * flushes.size()) *
                       static_cast<double>(flushes.front().size());
    double loss = 0;
    for (const Microbatches& flush : flushes) {
      for (const Microbatch& microbatch : flush) {
        const at::Tensor mean = loss_sum(microbatch) / static_cast<double>(microbatch.num_targets);
        (mean / count).backward();
        loss += mean.item<double>() / count;
      }
    }
    return loss;
  });
}

// Right for one flush: m times too large inside, divided by m at its end. The second flush's
// division meets what the first one left in .grad.
double scaled_again(const LossSum& loss_sum, const GlobalBatch& batch, FlatGradients& grads) {
  const auto n = static_cast<double>(num_targets(batch));
  return sum_over_ranks(batch, grads, [&](const Flushes& flushes) {
    double loss = 0;
    for (const Microbatches& flush : flushes) {
      const auto m = static_cast<double>(flush.size());
      loss += accumulate_gradients(loss_sum, flush, n / m) / m;
      grads.flat().div_(m);
    }
    return loss;
  });
}

// Each rank's gradient is that of its own mean, and the ranks are averaged, as
// DistributedDataParallel does. The loss in the log is Σ S / n all the same.
double local_weights(const LossSum& loss_sum, const GlobalBatch& batch, FlatGradients& grads) {
  const auto n = static_cast<double>(num_targets(batch));
  const auto num_ranks = static_cast<double>(batch.size());
  return sum_over_ranks(batch, grads, [&](const Flushes& flushes) {
    const double denominator = targets_of(flushes) * num_ranks;
    double loss = 0;
    for (const Microbatches& flush : flushes)
      loss += accumulate_gradients(loss_sum, flush, denominator) * denominator / n;
    return loss;
  });
}

double num_positions(const Microbatches& batches) {
  std::int64_t sum = 0;
  for (const Microbatch& microbatch : batches) sum += microbatch.targets.numel();
  return static_cast<double>(sum);
}

double num_positions(const GlobalBatch& batch) {
  double sum = 0;
  for (const Flushes& flushes : batch) {
    for (const Microbatches& flush : flushes) sum += num_positions(flush);
  }
  return sum;
}

double validation_means(const LossSum& loss_sum, const Microbatches& batches) {
  const at::NoGradGuard no_grad;
  double sum = 0;
  for (const Microbatch& microbatch : batches)
    sum += loss_sum(microbatch).item<double>() / static_cast<double>(microbatch.num_targets);
  return sum / static_cast<double>(batches.size());
}

}  // namespace

const char* name_of(Mistake mistake) {
  constexpr const char* kNames[] = {
      "right", "mean-of-means", "scaled-again", "validation-means", "local-weights", "padding"};
  return kNames[static_cast<int>(mistake)];
}

std::optional<Mistake> mistake_named(std::string_view name) {
  for (const Mistake mistake : kAllMistakes) {
    if (name == name_of(mistake)) return mistake;
  }
  return std::nullopt;
}

std::int64_t num_targets(const GlobalBatch& batch) {
  double sum = 0;
  for (const Flushes& flushes : batch) sum += targets_of(flushes);
  return static_cast<std::int64_t>(sum);
}

double accumulate(Mistake mistake, const LossSum& loss_sum, const GlobalBatch& batch,
                  FlatGradients& grads) {
  const auto n = static_cast<double>(num_targets(batch));
  check(n > 0, "this step has no target tokens: every row is padding");
  switch (mistake) {
    case Mistake::kNone:
    case Mistake::kValidationMeans:
      return one_denominator(loss_sum, batch, grads, n);
    case Mistake::kMeanOfMeans:
      return mean_of_means(loss_sum, batch, grads);
    case Mistake::kScaledAgain:
      return scaled_again(loss_sum, batch, grads);
    case Mistake::kLocalWeights:
      return local_weights(loss_sum, batch, grads);
    case Mistake::kPadding:
      return one_denominator(loss_sum, batch, grads, num_positions(batch));
  }
  throw CheckError(concat("no such mistake: ", static_cast<int>(mistake)));
}

double evaluate(Mistake mistake, const LossSum& loss_sum, const Microbatches& batches) {
  if (mistake == Mistake::kValidationMeans) return validation_means(loss_sum, batches);
  const double mean = ladder::evaluate(loss_sum, batches);
  if (mistake != Mistake::kPadding) return mean;
  return mean * static_cast<double>(batches.num_targets()) / num_positions(batches);
}

}  // namespace ladder::lab
