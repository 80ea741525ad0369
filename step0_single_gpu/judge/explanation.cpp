#include "step0_single_gpu/judge/explanation.hpp"

#include <ATen/ops/empty_like.h>
#include <ATen/ops/zeros_like.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <vector>

#include "common/core/check.hpp"
#include "common/optim/norm.hpp"
#include "common/testing/closeness.hpp"
#include "common/train/build_model.hpp"
#include "common/train/checkpoint/checkpoint.hpp"
#include "common/train/checkpoint/safetensors.hpp"
#include "common/train/report/report.hpp"
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
      const Microbatches own = share_of_rank(batch, options.data.deal, rank, num_ranks);
      for (std::int64_t i = 0; i < own.size(); ++i) {
        grads.zero();
        accumulate_gradients(loss_sum, Microbatches({own[i]}),
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

// Says whose gradients have this norm in the first step of a run, if they are those of one rank
// alone, of all ranks but one, or the same of microbatches; else empty. Computes each part in this
// process, as step 0 would.
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

// What the gradients look like whose norm is so many times the wanted one; empty if it says
// nothing. Ranks and microbatches may be equally many.
std::string meaning_of(double ratio, std::int64_t num_ranks, std::int64_t num_microbatches) {
  if (ratio == 0) return "the gradients are zero";
  std::string too_large, too_small;
  const auto look = [&](std::int64_t number, const char* what, const char* instead) {
    const double factor = static_cast<double>(number);
    if (number == 1) return;
    if (std::abs(ratio / factor - 1) < 1e-4)
      too_large += concat(too_large.empty() ? "" : ", or of ", what);
    if (std::abs(ratio * factor - 1) < 1e-4)
      too_small += concat(too_small.empty() ? "" : ", or by that of ", what, instead);
  };
  look(num_ranks, "ranks", ": a mean instead of a sum");
  look(num_microbatches, "microbatches", ", as each loss already is");
  if (!too_large.empty())
    return concat("the gradients are ", std::lround(ratio), " times too large: the number of ",
                  too_large);
  return too_small.empty() ? "" : "the gradients are divided by the number of " + too_small;
}

bool is_same(double a, double b) {
  return a == b || (std::isnan(a) && std::isnan(b));
}

// The number of values that are equal before the first difference.
std::size_t num_equal(const std::vector<double>& found, const std::vector<double>& wanted) {
  const auto end = std::mismatch(found.begin(), found.end(), wanted.begin(), wanted.end(), is_same);
  return static_cast<std::size_t>(end.first - found.begin());
}

// What the gradients of the first step in which their norms differ look like; empty if that says
// nothing.
std::string meaning_of(const std::vector<double>& norms, const std::vector<double>& wanted,
                       const TrainOptions& options, int num_ranks, int num_replicas) {
  const std::size_t step = num_equal(norms, wanted);
  if (step >= std::min(norms.size(), wanted.size())) return "";
  if (std::isfinite(norms[step]) && !std::isfinite(wanted[step]))
    return "the gradients overflow here, and something hides it: infinity and nan must reach the "
           "loss scaler";
  const std::string meaning =
      meaning_of(norms[step] / wanted[step], num_ranks, options.data.num_microbatches);
  return meaning.empty() && step == 0 ? part_of_first_step(norms[0], options, num_replicas)
                                      : meaning;
}

// Whether each line is about a difference that may be rounding.
bool are_within_rounding(const std::vector<std::string>& lines) {
  return std::all_of(lines.begin(), lines.end(), [](const std::string& line) {
    return line.find("within rounding") != std::string::npos;
  });
}

// "'h.0.ln_1.bias', 'ln_f.bias' and 3 more"
std::string list_of(const std::vector<std::string>& names) {
  constexpr std::size_t kMost = 2;
  std::string text;
  for (std::size_t i = 0; i < std::min(names.size(), kMost); ++i)
    text += concat(i > 0 ? ", '" : "'", names[i], "'");
  return names.size() > kMost ? concat(text, " and ", names.size() - kMost, " more") : text;
}

// The tensors that still are what rank 0 started with, although the oracle's have moved.
std::vector<std::string> unmoved(const FinishedRun& found, const FinishedRun& wanted,
                                 const TrainOptions& options) {
  const auto own = newest_checkpoint(found.folder), oracles = newest_checkpoint(wanted.folder);
  if (!own || !oracles) return {};
  SafetensorsReader own_file(*own / "model.safetensors"),
      wanted_file(*oracles / "model.safetensors");
  TrainOptions whole = in_fp32(options);
  whole.model.product_parts = 1;  // checkpoints hold whole tensors
  FlatModel start(layout_of(whole));
  build_model(whole, start);
  std::vector<std::string> names;
  for (const NamedTensor& leaf : start.leaves()) {
    const at::Tensor now = at::empty_like(leaf.tensor), then = at::empty_like(leaf.tensor);
    own_file.read(leaf.name, now);
    wanted_file.read(leaf.name, then);
    if (now.equal(leaf.tensor) && !then.equal(leaf.tensor)) names.push_back(leaf.name);
  }
  return names;
}

}  // namespace

std::vector<std::string> explain(const FinishedRun& found, const FinishedRun& wanted,
                                 const TrainOptions& options, int num_ranks, int num_replicas) {
  auto [lines, hash, tensors] = compare_runs(found, wanted);
  const TrainReport &own = found.report, &right = wanted.report;
  const std::string meaning =
      meaning_of(own.grad_norms, right.grad_norms, options, num_ranks, num_replicas);
  if (!meaning.empty()) lines.push_back(meaning);
  // The norm of the parameters is taken after the update, that of the gradients before it.
  const std::size_t num_updates = num_equal(own.param_norms, right.param_norms);
  const std::size_t num_right =
      std::min(num_equal(own.losses, right.losses), num_equal(own.grad_norms, right.grad_norms));
  if (num_updates < num_right && !hash.empty()) {  // else it is only their norm that is wrong
    lines.push_back(concat("the loss and the gradient norm of step ", num_updates + 1,
                           " are right, the parameters after it are not: look at the update, and "
                           "at how each rank gets all of it"));
  }
  if (!lines.empty() && are_within_rounding(lines) && are_within_rounding(tensors))
    lines.push_back(kRoundingHint);
  if (!tensors.empty()) {
    lines.push_back(concat(
        tensors[0], tensors.size() > 1 ? concat("; so do ", tensors.size() - 1, " other tensors")
                                       : "; no other tensor does"));
    const std::vector<std::string> still = unmoved(found, wanted, options);
    if (!still.empty()) lines.push_back(concat(list_of(still), " did not move at all"));
  } else if (!hash.empty()) {
    lines.push_back("the parameters differ");
  }
  return lines;
}

}  // namespace ladder
