// Self-distillation: learning to see the same thing in two views, without labels.
//
// Two noisy views are made of each sample. A teacher, which follows the student as a moving
// average, assigns each view to prototypes; the student, which sees the other view, has to predict
// that. What would be easiest, to assign everything to one prototype, is ruled out by balancing the
// assignments over several samples: every prototype gets the same share of them.
//
// Rows of a microbatch of B samples: the first views, then the second views in the same order. A
// row's score for prototype k is the mean of the model's output k over the row's positions. A sample
// without a target, such as an empty document, has no positions: nothing is counted, balanced or
// learned of it.
//
// Sources: Caron et al., SwAV, 2020 (2006.09882); Caron et al., DINO, 2021 (2104.14294); Cuturi,
// "Sinkhorn distances", 2013.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>

#include "common/data/batch.hpp"
#include "common/train/report/step_record.hpp"
#include "step8_pipeline_ga/objectives/objective_options.hpp"
#include "step8_pipeline_ga/runner/step_objective.hpp"

namespace ladder {

// Replaces the rows [B, T] by two views of each, [2B, T]. A view replaces a share of `noise` of the
// tokens by random ones below vocab_size. It depends on the seed, the epoch, the sample and the
// view, and on nothing else: not on the way in which a batch is cut.
void make_views(Microbatch& microbatch, std::uint64_t seed, std::int64_t epoch, double noise,
                std::int64_t vocab_size);

// The mean of the first K outputs over those positions of each row that have a target: logits [R,
// T, V], targets [R, T] -> [R, K].
at::Tensor prototype_scores(const at::Tensor& logits, const at::Tensor& targets,
                            std::int64_t num_prototypes);

// A teacher's prototype_scores(): −∞ for a row without a target, which balanced_assignment() leaves
// out.
at::Tensor teacher_scores(const at::Tensor& logits, const at::Tensor& targets,
                          std::int64_t num_prototypes);

// The denominator: a batch's samples that have a target, before or after make_views().
std::int64_t count_samples(const Microbatches& batch);

// Sinkhorn and Knopp: shares [B, K] proportional to exp(score / temperature), rescaled in turn so
// that every prototype gets as much as any other, and every sample adds up to 1 (exactly, since
// that is rescaled last). In double precision; scores of any floating-point type. A row of −∞ gets
// nothing, and the others what they would get without it.
at::Tensor balanced_assignment(const at::Tensor& scores, double temperature, int iterations = 3);

// −Σ assignment of one view · log softmax(student's scores of the other view / temperature), the
// mean of both directions: student [2B, K], assignment [2B, K] -> [B].
at::Tensor distillation_losses(const at::Tensor& student, const at::Tensor& assignment,
                               double temperature);

// The summed loss [] of a microbatch of views, whose `second_model_output` is the assignment of
// its rows [2B, K]. Adds what describes the student's predictions to `sums`, unless that is null.
at::Tensor distillation_loss_sum(const at::Tensor& logits, const Microbatch& microbatch,
                                 const DistillationOptions& options, MetricSums* sums);

// assignment_entropy: of the student's mean prediction; log K if all prototypes are used alike, 0
// if
//                     everything is assigned to one.
// sample_entropy:     the mean of the single predictions' entropies; log K if the student cannot
//                     tell the samples apart. Both in nats.
Metrics distillation_metrics(const MetricSums& sums);

// As the pipeline's loop uses it: a teacher, whose stages run next to the model's, an average in
// fp32 of what the student's optimizer updates: its masters, or, if it has none, the parameters
// themselves.
std::unique_ptr<StepObjective> make_self_distillation(const TrainOptions& options,
                                                      const StagePlan& plan, const Mesh& mesh,
                                                      const FlatModel& student,
                                                      Optimizer& optimizer);

// A replica's samples, without those that would be balanced alone, and so belong to every prototype
// alike: where each microbatch is balanced by itself, an epoch's last one is left out if it would
// be a microbatch of its own. Throws UsageError if there would be no other.
DataShard without_lone_samples(DataShard of_replica, const TrainOptions& options, int num_replicas);

}  // namespace ladder
