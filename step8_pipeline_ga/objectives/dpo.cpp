#include "step8_pipeline_ga/objectives/dpo.hpp"

#include <ATen/Functions.h>

#include <filesystem>
#include <optional>

#include "common/core/check.hpp"
#include "common/core/cuda_device.hpp"
#include "common/core/precision.hpp"
#include "common/train/checkpoint/checkpoint.hpp"
#include "step8_pipeline_ga/objectives/inference_model.hpp"
#include "step8_pipeline_ga/objectives/reference_cache.hpp"

namespace ladder {

at::Tensor answer_log_probs(const at::Tensor& logits, const at::Tensor& targets) {
  const at::Tensor losses = at::cross_entropy_loss(
      widened(logits).flatten(0, -2), to_device(targets, logits.device()).flatten(), /*weight=*/{},
      at::Reduction::None, kIgnoredTarget);  // 0 where there is no target
  return -losses.view(targets.sizes()).sum(1);
}

PairScores score_pairs(const at::Tensor& policy, const at::Tensor& reference,
                       const DpoOptions& options) {
  check(policy.dim() == 1 && policy.size(0) % 2 == 0 && policy.sizes() == reference.sizes(),
        "pairs are scored by the log-probabilities of chosen and rejected answers: got ",
        policy.sizes(), " of the model and ", reference.sizes(), " of the reference");
  const at::Tensor rewards = options.beta * (policy - reference.to(policy.device()));
  const std::int64_t num_pairs = policy.size(0) / 2;
  const at::Tensor chosen = rewards.narrow(0, 0, num_pairs);
  const at::Tensor rejected = rewards.narrow(0, num_pairs, num_pairs);
  const at::Tensor margin = chosen - rejected;
  const double smoothing = options.label_smoothing;
  return {-(1 - smoothing) * at::log_sigmoid(margin) - smoothing * at::log_sigmoid(-margin),
          chosen.detach(), rejected.detach()};
}

std::int64_t count_pairs(const Microbatches& batch, DpoMeanOver mean_over) {
  return mean_over == DpoMeanOver::kTokens ? batch.num_targets() : batch.num_samples();
}

at::Tensor dpo_loss_sum(const at::Tensor& logits, const Microbatch& microbatch,
                        const DpoOptions& options, MetricSums* sums) {
  const at::Tensor policy = answer_log_probs(logits, microbatch.targets);
  const PairScores scores = score_pairs(policy, microbatch.second_model_output, options);
  if (sums != nullptr) {
    const at::Tensor pairs = policy.detach().view({2, -1});
    const at::Tensor log_probs = pairs.sum(1, false, at::kDouble);
    sums->resize(kNumDpoSums);
    (*sums)[kPairSum] += static_cast<double>(scores.loss.size(0));
    (*sums)[kAccurateSum] += (scores.chosen_reward > scores.rejected_reward).sum().item<double>();
    (*sums)[kRankedSum] += (pairs[0] > pairs[1]).sum().item<double>();
    (*sums)[kChosenRewardSum] += scores.chosen_reward.sum(at::kDouble).item<double>();
    (*sums)[kRejectedRewardSum] += scores.rejected_reward.sum(at::kDouble).item<double>();
    (*sums)[kChosenLogProbSum] += log_probs[0].item<double>();
    (*sums)[kRejectedLogProbSum] += log_probs[1].item<double>();
    (*sums)[kAnswerTokenSum] += static_cast<double>(microbatch.num_targets);
  }
  if (options.mean_over == DpoMeanOver::kPairs) return scores.loss.sum();
  const at::Tensor is_answer = microbatch.targets != kIgnoredTarget;
  const at::Tensor tokens = is_answer.sum(1).view({2, -1}).sum(0);  // of both answers of each pair
  return (scores.loss * to_device(tokens, scores.loss.device())).sum();
}

Metrics dpo_metrics(const MetricSums& sums) {
  const auto mean = [&](DpoSum sum) { return sums[sum] / sums[kPairSum]; };
  return {{"accuracy", mean(kAccurateSum)},
          {"ranking_accuracy", mean(kRankedSum)},
          {"margin", mean(kChosenRewardSum) - mean(kRejectedRewardSum)},
          {"chosen_reward", mean(kChosenRewardSum)},
          {"rejected_reward", mean(kRejectedRewardSum)},
          {"chosen_log_prob", mean(kChosenLogProbSum)},
          {"rejected_log_prob", mean(kRejectedLogProbSum)},
          {"answer_tokens", mean(kAnswerTokenSum)}};
}

// ---- in a pipeline ----

namespace {

class Dpo final : public StepObjective {
 public:
  Dpo(const TrainOptions& options, const StagePlan& plan, const Mesh& mesh)
      : options_(options),
        plan_(plan),
        mesh_(mesh),
        source_(checkpoint_in("--dpo-reference", own().reference.empty() ? options.output.init_from
                                                                         : own().reference)) {
    state.reference_hash = describe_checkpoint(source_).param_hash;
    count = [this](const Microbatches& batch) { return count_pairs(batch, own().mean_over); };
    loss_sum = [this](const at::Tensor& logits, const Microbatch& microbatch) {
      return dpo_loss_sum(logits, microbatch, own(), &sums_);
    };
  }

  void start(Run& run, const BatchStream& batches) override {
    run.announce(batches.training_data().description());  // tells how many pairs were cut
    const auto load = [&] {
      auto reference = std::make_unique<InferenceModel>(options_, plan_, mesh_);
      reference->load(source_, batches.training_data().tokenizer());
      return reference;
    };
    if (own().cache.empty()) {
      reference_ = load();
    } else {
      cache_.emplace(options_, state.reference_hash, batches, load, mesh_, run);
    }
  }

  void prepare(Microbatches& batch, const BatchOrigin& origin) override {
    if (cache_) {
      for (std::int64_t i = 0; i < batch.size(); ++i)
        batch[i].second_model_output = cache_->log_probs(batch[i].samples, origin.is_validation);
    } else {
      reference_->forward(batch, [&](const at::Tensor& logits, std::int64_t i) {
        batch[i].second_model_output = answer_log_probs(logits, batch[i].targets);
      });
    }
  }

  Metrics take_metrics() override {
    return dpo_metrics(take_sums(sums_, kNumDpoSums, mesh_.world));
  }

 private:
  const DpoOptions& own() const { return options_.get<ObjectiveOptions>().dpo; }

  TrainOptions options_;
  StagePlan plan_;
  Mesh mesh_;
  std::filesystem::path source_;  // the reference's checkpoint: a newer one does not replace it
  std::unique_ptr<InferenceModel> reference_;  // null if there is a cache
  std::optional<ReferenceCache> cache_;
  MetricSums sums_;
};

}  // namespace

std::unique_ptr<StepObjective> make_dpo(const TrainOptions& options, const StagePlan& plan,
                                        const Mesh& mesh) {
  return std::make_unique<Dpo>(options, plan, mesh);
}

}  // namespace ladder
