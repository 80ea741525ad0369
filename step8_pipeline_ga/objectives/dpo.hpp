// Direct preference optimization: learning from pairs of a better and a worse answer.
//
// A pair is a prompt with two answers. The model should raise the probability of the chosen one and
// lower that of the rejected one, compared with a frozen reference model, which keeps it from
// drifting away from language. With log p the log-probability of a whole answer,
//
//   reward = β · (log p(answer) − log p_reference(answer))
//   loss   = −log σ(reward of the chosen − reward of the rejected)
//
// Rows of a microbatch of B pairs: the B chosen answers, then the B rejected ones in the same
// order, each after its prompt; one forward scores all 2B. Only tokens of answers have targets.
//
// Sources: Rafailov et al. 2023 (2305.18290); label smoothing: Mitchell 2023, "conservative DPO".
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>

#include "common/data/batch.hpp"
#include "common/train/report/step_record.hpp"
#include "step8_pipeline_ga/objectives/objective_options.hpp"
#include "step8_pipeline_ga/runner/step_objective.hpp"

namespace ladder {

// The log-probability of each row's targets: logits [R, T, V], targets [R, T] -> [R], nats.
at::Tensor answer_log_probs(const at::Tensor& logits, const at::Tensor& targets);

struct PairScores {  // each [B]
  at::Tensor loss, chosen_reward, rejected_reward;
};

// policy, reference: log-probabilities of the answers [2B]. With label smoothing s, the loss is
// −(1 − s) log σ(margin) − s log σ(−margin).
PairScores score_pairs(const at::Tensor& policy, const at::Tensor& reference,
                       const DpoOptions& options);

// The denominator: a batch's pairs, or the tokens of its answers.
std::int64_t count_pairs(const Microbatches& batch, DpoMeanOver mean_over);

// The summed loss of a microbatch [], whose `second_model_output` [2B] has been filled in. A pair
// counts once; or, if the mean is over tokens, as often as its two answers have tokens, whichever
// pairs share its microbatch. Adds what the pairs score to `sums`, unless that is null.
at::Tensor dpo_loss_sum(const at::Tensor& logits, const Microbatch& microbatch,
                        const DpoOptions& options, MetricSums* sums);

Metrics dpo_metrics(const MetricSums& sums);

// As the pipeline's loop uses it: the frozen reference, whose stages run next to the model's, or a
// cache of what it says.
std::unique_ptr<StepObjective> make_dpo(const TrainOptions& options, const StagePlan& plan,
                                        const Mesh& mesh);

}  // namespace ladder
