#include "step8_pipeline_ga/objectives/self_distillation.hpp"

#include <ATen/Functions.h>

#include <cmath>
#include <limits>

#include "common/core/check.hpp"
#include "common/core/cuda_device.hpp"
#include "common/core/precision.hpp"
#include "common/core/seed.hpp"

namespace ladder {

void make_views(Microbatch& microbatch, std::uint64_t seed, std::int64_t epoch, double noise,
                std::int64_t vocab_size) {
  const std::int64_t num_samples = microbatch.tokens.size(0), context = microbatch.tokens.size(1);
  check(num_samples == static_cast<std::int64_t>(microbatch.samples.size()),
        "views need to know the samples of ", num_samples, " rows, there are ",
        microbatch.samples.size());
  microbatch.tokens = microbatch.tokens.repeat({2, 1});
  microbatch.targets = microbatch.targets.repeat({2, 1});
  microbatch.num_targets *= 2;
  auto* token = microbatch.tokens.mutable_data_ptr<std::int64_t>();
  for (const int view : {1, 2}) {
    for (const std::int64_t sample : microbatch.samples) {
      Random random(
          derive_seed(seed, concat("epoch ", epoch, ", sample ", sample, ", view ", view)));
      for (std::int64_t t = 0; t < context; ++t, ++token)
        if (random.uniform() < noise) *token = random.below(vocab_size);
    }
  }
}

at::Tensor prototype_scores(const at::Tensor& logits, const at::Tensor& targets,
                            std::int64_t num_prototypes) {
  const at::Tensor outputs = widened(logits.narrow(2, 0, num_prototypes));
  const at::Tensor is_real = (targets != kIgnoredTarget).to(outputs.options());  // [R, T]
  const at::Tensor sums = (outputs * is_real.unsqueeze(2)).sum(1);               // [R, K]
  return sums / is_real.sum(1, /*keepdim=*/true).clamp_min(1);
}

at::Tensor teacher_scores(const at::Tensor& logits, const at::Tensor& targets,
                          std::int64_t num_prototypes) {
  const at::Tensor scores = prototype_scores(logits, targets, num_prototypes);
  return scores.masked_fill(to_device(targets == kIgnoredTarget, scores.device()).all(1, true),
                            -std::numeric_limits<double>::infinity());
}

std::int64_t count_samples(const Microbatches& batch) {
  std::int64_t count = 0;
  for (const Microbatch& m : batch) {
    const auto num_samples = static_cast<std::int64_t>(m.samples.size());
    const at::Tensor is_target = m.targets.narrow(0, 0, num_samples) != kIgnoredTarget;
    count += is_target.any(1).sum().item<std::int64_t>();
  }
  return count;
}

at::Tensor balanced_assignment(const at::Tensor& scores, double temperature, int iterations) {
  check(scores.dim() == 2 && scores.numel() > 0, "an assignment needs scores [samples, prototypes]",
        ", got ", scores.sizes());
  const at::Tensor is_left_out = scores.select(1, 0) == -std::numeric_limits<double>::infinity();
  const at::Tensor others = (~is_left_out).nonzero().flatten();
  if (others.size(0) < scores.size(0)) {
    const at::Tensor shares = at::zeros_like(scores);
    if (others.size(0) == 0) return shares;
    return shares.index_copy_(
        0, others, balanced_assignment(scores.index_select(0, others), temperature, iterations));
  }
  // Logarithms: at a low temperature the shares themselves would underflow, down to 0 / 0.
  at::Tensor log_shares = scores.to(at::kDouble) / temperature;
  for (int i = 0; i < iterations; ++i) {
    log_shares = log_shares.log_softmax(0);  // the prototypes get equal sums
    log_shares = log_shares.log_softmax(1);  // and each sample adds up to 1
  }
  return log_shares.exp().to(scores.scalar_type());
}

at::Tensor distillation_losses(const at::Tensor& student, const at::Tensor& assignment,
                               double temperature) {
  const at::Tensor log_probs = (student / temperature).log_softmax(1);
  const at::Tensor of_other_view = assignment.roll(assignment.size(0) / 2, 0);
  return -(of_other_view * log_probs).sum(1).view({2, -1}).mean(0);
}

at::Tensor distillation_loss_sum(const at::Tensor& logits, const Microbatch& microbatch,
                                 const DistillationOptions& options, MetricSums* sums) {
  const at::Tensor scores = prototype_scores(logits, microbatch.targets, options.prototypes);
  if (sums != nullptr) {  // Σ entropy, then Σ probability of each prototype
    const at::Tensor is_counted = (microbatch.targets != kIgnoredTarget).any(1, true);
    const at::Tensor p =
        (scores.detach().to(at::kDouble) / options.student_temperature).softmax(1) *
        to_device(is_counted, scores.device());
    const at::Tensor total = p.sum(0).cpu();
    sums->resize(static_cast<std::size_t>(1 + options.prototypes));
    (*sums)[0] -= at::xlogy(p, p).sum().item<double>();
    for (std::int64_t k = 0; k < options.prototypes; ++k)
      (*sums)[static_cast<std::size_t>(1 + k)] += total.const_data_ptr<double>()[k];
  }
  return distillation_losses(scores, microbatch.second_model_output, options.student_temperature)
      .sum();
}

Metrics distillation_metrics(const MetricSums& sums) {
  double num_rows = 0, entropy = 0;
  for (std::size_t k = 1; k < sums.size(); ++k) num_rows += sums[k];
  for (std::size_t k = 1; k < sums.size(); ++k) {
    const double p = sums[k] / num_rows;
    if (p > 0) entropy -= p * std::log(p);
  }
  return {{"assignment_entropy", entropy}, {"sample_entropy", sums[0] / num_rows}};
}

}  // namespace ladder
