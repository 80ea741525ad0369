// For the laboratory's tests: the algebra. Each microbatch's summed loss S_j and its gradient G_j,
// from which every run's gradient follows in closed form, in double.
#pragma once

#include <ATen/core/Tensor.h>

#include <cmath>
#include <string>
#include <vector>

#include "step0_single_gpu/denominators/laboratory.hpp"

namespace ladder::lab {

// Opened once for all tests.
inline const Corpus& documents() {
  static const Corpus corpus(Rows::kDocuments);
  return corpus;
}

// One microbatch, and its place in the step.
struct Share {
  std::size_t rank = 0, flush = 0;
  double targets = 0, positions = 0;
  double loss_sum = 0;  // S_j
  at::Tensor gradient;  // G_j, in double
};

inline std::vector<Share> shares_of(const LossSum& loss_sum, const GlobalBatch& batch,
                                    FlatGradients& grads) {
  std::vector<Share> shares;
  for (std::size_t rank = 0; rank < batch.size(); ++rank) {
    for (std::size_t flush = 0; flush < batch[rank].size(); ++flush) {
      for (const Microbatch& microbatch : batch[rank][flush]) {
        grads.zero();
        const at::Tensor sum = loss_sum(microbatch);
        sum.backward();
        shares.push_back({rank, flush, static_cast<double>(microbatch.num_targets),
                          static_cast<double>(microbatch.targets.numel()), sum.item<double>(),
                          grads.flat().to(at::kDouble, /*non_blocking=*/false, /*copy=*/true)});
      }
    }
  }
  grads.zero();
  return shares;
}

template <class Value>
double sum_of(const std::vector<Share>& shares, Value value) {
  double sum = 0;
  for (const Share& share : shares) sum += value(share);
  return sum;
}

// What the mistake multiplies this microbatch's G_j by, where the right weight is 1/n.
inline double weight_of(Mistake mistake, const Share& share, const std::vector<Share>& shares,
                        const Cut& cut) {
  const double n = sum_of(shares, [](const Share& other) { return other.targets; });
  switch (mistake) {
    case Mistake::kMeanOfMeans:
      return 1 / (share.targets * static_cast<double>(shares.size()));
    case Mistake::kScaledAgain: {  // once for each later flush
      const auto later = static_cast<double>(cut.flushes - 1) - static_cast<double>(share.flush);
      return std::pow(static_cast<double>(cut.microbatches), -later) / n;
    }
    case Mistake::kLocalWeights:
      return 1 / (static_cast<double>(cut.ranks) * sum_of(shares, [&](const Share& other) {
                    return other.rank == share.rank ? other.targets : 0;
                  }));
    case Mistake::kPadding:
      return 1 / sum_of(shares, [](const Share& other) { return other.positions; });
    default:
      return 1 / n;
  }
}

inline at::Tensor gradient_of(Mistake mistake, const std::vector<Share>& shares, const Cut& cut) {
  at::Tensor sum = shares.front().gradient * 0;
  for (const Share& share : shares)
    sum = sum + share.gradient * weight_of(mistake, share, shares, cut);
  return sum;
}

// The loss that the run reports: that of its own objective, or the right one.
inline double loss_of_step(Mistake mistake, const std::vector<Share>& shares, const Cut& cut) {
  const bool is_own = mistake == Mistake::kMeanOfMeans || mistake == Mistake::kPadding;
  const Mistake reported = is_own ? mistake : Mistake::kNone;
  return sum_of(shares, [&](const Share& share) {
    return share.loss_sum * weight_of(reported, share, shares, cut);
  });
}

inline at::Tensor gradient_from(Mistake mistake, Laboratory& lab, const GlobalBatch& batch) {
  lab.grads().zero();
  accumulate(mistake, lab.loss_sum(), batch, lab.grads());
  return lab.grads().flat().to(at::kDouble, /*non_blocking=*/false, /*copy=*/true);
}

}  // namespace ladder::lab
