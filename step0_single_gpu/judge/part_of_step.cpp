#include "step0_single_gpu/judge/part_of_step.hpp"

#include <ATen/ops/zeros_like.h>

#include <cmath>
#include <functional>
#include <vector>

#include "common/core/check.hpp"
#include "common/optim/norm.hpp"
#include "common/train/build_model.hpp"
#include "step0_single_gpu/accumulate_gradients.hpp"
#include "step0_single_gpu/simulated_ranks.hpp"

namespace ladder {
namespace {

constexpr double kTolerance = 1e-4;  // of norms whose sums may have other orders

// The first step's gradients, one buffer for each microbatch of each rank.
class FirstStep {
 public:
  FirstStep(const TrainOptions& options, int num_ranks) : flat_(layout_of(options)) {
    const Model model = build_model(options, flat_);
    const LossSum loss_sum = loss_of(model, kNextToken);
    FlatGradients grads(flat_);
    const Microbatches batch = global_batches(options.data, num_ranks).next();
    for (int rank = 0; rank < num_ranks; ++rank) {
      for (std::int64_t i = 0; i < batch.size(); ++i) {
        grads.zero();
        accumulate_gradients(loss_sum, Microbatches({rows_of_rank(batch[i], rank, num_ranks)}),
                             static_cast<double>(kNextToken.count(batch)));
        parts_.push_back({rank, i, grads.flat().clone()});
      }
    }
  }

  using Choice = std::function<bool(std::int64_t rank, std::int64_t microbatch)>;
  double norm_of(const Choice& is_in) const {
    at::Tensor sum = at::zeros_like(parts_[0].gradients);
    for (const Part& part : parts_) {
      if (is_in(part.rank, part.microbatch)) sum += part.gradients;
    }
    return flat_norm(flat_.layout(), sum);
  }

 private:
  struct Part {
    std::int64_t rank, microbatch;
    at::Tensor gradients;
  };
  FlatModel flat_;
  std::vector<Part> parts_;
};

}  // namespace

std::string part_of_first_step(double norm, const TrainOptions& options, int num_ranks) {
  const FirstStep step(options, num_ranks);
  const auto is_of = [&](const FirstStep::Choice& is_in) {
    return std::abs(norm / step.norm_of(is_in) - 1) < kTolerance;
  };
  for (std::int64_t i = 0; num_ranks > 1 && i < num_ranks; ++i) {
    if (is_of([i](auto rank, auto) { return rank == i; }))
      return concat("the gradients are those of rank ", i, " alone: nothing was added to them");
    if (is_of([i](auto rank, auto) { return rank != i; }))
      return concat("the gradients lack those of rank ", i);
  }
  const std::int64_t num_microbatches = options.data.num_microbatches;
  for (std::int64_t i = 0; num_microbatches > 1 && i < num_microbatches; ++i) {
    if (is_of([i](auto, auto microbatch) { return microbatch == i; }))
      return concat("the gradients are those of microbatch ", i + 1, " of ", num_microbatches,
                    " alone");
    if (is_of([i](auto, auto microbatch) { return microbatch != i; }))
      return concat("the gradients lack those of microbatch ", i + 1, " of ", num_microbatches);
  }
  return "";
}

}  // namespace ladder
