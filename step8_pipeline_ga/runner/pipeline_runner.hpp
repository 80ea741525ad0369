// Executes a pipeline plan: forwards, backwards and messages, in the plan's order.
//
// It knows no schedule by name. A forward takes tokens (the first chunk) or what the stage before
// has sent; a backward starts at the loss (the last chunk) or at the gradient that the next stage
// has sent. Between the two, autograd keeps what the forward saved: the activations of a live
// microbatch. What has been sent keeps no memory: of a chunk's output, only the place in the graph
// stays where backward will begin. A backward, or its dgrad, frees that graph, the chunk's input
// and the gradient that the next stage has sent. What a wgrad needs is in its queue
// (weight_gradients.hpp) and nowhere else.
//
// Messages have no tags: the plan fixes the order between each pair of ranks, and they match in
// that order. Sends do not block; a stage waits when it needs what has not arrived, and before it
// starts a send while two earlier ones have not left. The plan is checked before it
// runs: it completes even on a transport that buffers nothing. In a trace, an action is a span with
// the numbers "microbatch" and "chunk", named by name_of(); the wait for what it needs is not in it.
//
// Gradients are added up in microbatch order on every stage, whatever the schedule, as in a single
// process.
//
// Collective: accumulate_gradients(), forward() and loss_sums(), over the stages of one replica.
//             Every stage passes the same batches: the first one needs the tokens, the last one the
//             targets, and all need the shapes.
// Lifetime:   the communicator outlives the runner. A bucketer's hooks fire during
//             accumulate_gradients().
// Throws:     what the communicator throws; CheckError for a plan that check_plan() refuses.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <map>
#include <utility>
#include <vector>

#include "common/comm/communicator.hpp"
#include "common/data/batch.hpp"
#include "common/model/model.hpp"
#include "step0_single_gpu/objective.hpp"
#include "step8_pipeline_ga/schedule/planner.hpp"

namespace ladder {

// Called with what the last chunk returns for a microbatch.
using OutputVisitor = std::function<void(const at::Tensor& output, std::int64_t microbatch)>;

// Called with a parameter of the stage, itself and not a copy, as soon as a separate wgrad has
// added to its gradient: no hook fires for it. May be empty; wgrads run all the same.
using OnWeightGradient = std::function<void(const at::Tensor& parameter)>;

class PipelineRunner {
 public:
  // `chunks`: this stage's, in order. Activations between chunks are [B, T, channels] of this type,
  // on this device.
  PipelineRunner(std::vector<Model> chunks, std::int64_t channels, Communicator& stages,
                 Planner planner, const at::TensorOptions& activations = at::kFloat);

  // Runs the batch forward and backward, in flushes of num_microbatches (the last may have fewer),
  // and returns this stage's part of the step's loss, that of all flushes: (Σ summed losses) /
  // num_targets on the last stage, 0 elsewhere. Its gradients are added to what .grad holds. A step
  // without any target has a loss of 0 and gradients of 0. Throws CheckError if num_targets is
  // negative or not a number.
  double accumulate_gradients(const Objective& objective, const Microbatches& batch,
                              double num_targets, std::int64_t num_microbatches,
                              const OnWeightGradient& on_weight_gradient = {});

  // Runs the batch forward, without gradients, and keeps nothing of it. On the last stage, calls
  // `visit` with each microbatch's output, in order.
  void forward(const Microbatches& batch, const OutputVisitor& visit);

  // The summed loss of each microbatch, without gradients: on the last stage, zeros elsewhere.
  std::vector<double> loss_sums(const Objective& objective, const Microbatches& batch);

  // What the last chunk returns for the last of these tokens [B, T]: the logits [B, 1, V] of the
  // next one, on every stage, without gradients.
  at::Tensor forward(const at::Tensor& tokens);

 private:
  class Execution;  // of one plan
  // A plan that has been checked; with forwards only, unless it is for training.
  const PipelinePlan& plan_of(std::int64_t num_microbatches, bool is_training);

  std::vector<Model> chunks_;
  std::int64_t channels_;
  at::TensorOptions activation_options_;
  Communicator& stages_;
  Planner planner_;
  std::map<std::pair<std::int64_t, bool>, PipelinePlan> plans_;  // as plan_of() made them
};

}  // namespace ladder
