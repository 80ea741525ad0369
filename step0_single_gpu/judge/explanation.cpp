#include "step0_single_gpu/judge/explanation.hpp"

#include <ATen/ops/empty_like.h>

#include <algorithm>
#include <cmath>
#include <filesystem>

#include "common/core/check.hpp"
#include "common/train/build_model.hpp"
#include "common/train/checkpoint/checkpoint.hpp"
#include "common/train/checkpoint/safetensors.hpp"
#include "step0_single_gpu/judge/part_of_step.hpp"

namespace ladder {
namespace {

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
  FlatModel start(layout_of(in_fp32(options)));
  build_model(in_fp32(options), start);
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
  const std::vector<double>&norms = found.report.grad_norms, &right = wanted.report.grad_norms;
  const auto first = std::mismatch(norms.begin(), norms.end(), right.begin(), right.end());
  if (first.first != norms.end() && first.second != right.end()) {
    std::string meaning =
        meaning_of(*first.first / *first.second, num_ranks, options.data.num_microbatches);
    if (meaning.empty() && first.first == norms.begin())
      meaning = part_of_first_step(norms[0], options, num_replicas);
    if (!meaning.empty()) lines.push_back(meaning);
  }
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
