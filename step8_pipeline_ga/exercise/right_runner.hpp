// A runner that is right, in small parts: a wrong one overrides a part. Read it after you have
// written your own.
#pragma once

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/variable.h>

#include <algorithm>
#include <deque>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "common/core/check.hpp"
#include "common/model/weight_gradients.hpp"
#include "step8_pipeline_ga/exercise/grader.hpp"

namespace ladder::step8 {

class RightRunner {
 public:
  RightRunner(std::vector<Model> chunks, std::int64_t channels, Communicator& stages,
              Planner planner, const at::TensorOptions& activations)
      : chunks_(std::move(chunks)),
        channels_(channels),
        activation_options_(activations),
        stages_(stages),
        planner_(std::move(planner)) {}
  virtual ~RightRunner() = default;
  RightRunner(const RightRunner&) = delete;
  RightRunner& operator=(const RightRunner&) = delete;

  double accumulate_gradients(const Objective& objective, const Microbatches& batch,
                              double num_targets, std::int64_t num_microbatches,
                              const OnWeightGradient& on_weight_gradient, double loss_scale) {
    on_weight_gradient_ = on_weight_gradient;
    loss_scale_ = loss_scale;
    loss_ = 0;
    for (first_ = 0; first_ < batch.size(); first_ += num_microbatches) {
      begin_flush();
      plan_ = planner_(std::min(num_microbatches, batch.size() - first_));
      for (const Action& action : plan_.stages[static_cast<std::size_t>(stages_.rank())])
        execute(action, objective, batch, num_targets);
      while (!sends_.empty()) finish_send();
      end_flush();
    }
    return returned_loss();
  }

  std::vector<double> loss_sums(const Objective& objective, const Microbatches& batch) {
    const at::NoGradGuard no_grad;
    loss_sums_.assign(static_cast<std::size_t>(batch.size()), 0);
    first_ = 0;
    plan_ = plan_forwards(stages_.size(), batch.size());
    for (const Action& action : plan_.stages[static_cast<std::size_t>(stages_.rank())])
      execute(action, objective, batch, /*num_targets=*/1);
    while (!sends_.empty()) finish_send();
    end_evaluation();
    return loss_sums_;
  }

 protected:
  using Place = std::pair<int, std::int64_t>;
  struct Live {
    at::Tensor input;
    torch::autograd::Edge output;
    std::unique_ptr<WeightGradientQueue> weight_gradients = std::make_unique<WeightGradientQueue>();
  };

  // Both halves, or the input's.
  virtual void backward(const Action& action, const at::Tensor& received) {
    Live& live = live_of(action);
    run_backward(action, live, first_gradient(action, received));
    if (action.chunk > 0) gradients_[place_of(action)] = gradient_to_send(action, live, received);
    release(action, live);
  }
  virtual Live& live_of(const Action& action) { return live_.at(place_of(action)); }
  virtual at::Tensor first_gradient(const Action& action, const at::Tensor& received) {
    return is_last(action) ? at::full({}, loss_scale_) : received;
  }
  virtual void run_backward(const Action& /*action*/, Live& live, const at::Tensor& gradient) {
    execute_engine(std::exchange(live.output, {}), gradient);
  }
  virtual at::Tensor gradient_to_send(const Action& /*action*/, Live& live,
                                      const at::Tensor& /*received*/) {
    return live.input.grad();
  }
  virtual void release(const Action& action, Live& live) {
    live.input.reset();
    if (action.kind == ActionKind::kBackward) live_.erase(place_of(action));
  }
  virtual void weight_backward(const Action& action) {
    live_.extract(place_of(action)).mapped().weight_gradients->run(on_weight_gradient_);
  }
  virtual void begin_flush() {}
  virtual void end_flush() {}
  virtual double returned_loss() { return loss_; }
  virtual void evaluate(std::int64_t microbatch, double loss_sum) {
    loss_sums_[static_cast<std::size_t>(microbatch)] = loss_sum;
  }
  virtual void end_evaluation() { live_.clear(); }

  static void execute_engine(const torch::autograd::Edge& output, const at::Tensor& gradient,
                             bool keep_graph = false) {
    torch::autograd::Engine::get_default_engine().execute({output}, {gradient}, keep_graph,
                                                          /*create_graph=*/false,
                                                          /*accumulate_grad=*/true);
  }
  static Place place_of(const Action& action) { return {action.chunk, action.microbatch}; }
  bool is_last(const Action& action) const { return action.chunk + 1 == plan_.num_chunks(); }
  const Model& chunk_of(const Action& action) const {
    return chunks_[static_cast<std::size_t>(action.chunk / plan_.num_stages)];
  }

  PipelinePlan plan_;
  std::vector<Model> chunks_;
  std::int64_t channels_;
  at::TensorOptions activation_options_;
  double loss_ = 0, loss_scale_ = 1;
  std::vector<double> loss_sums_;
  Communicator& stages_;
  Planner planner_;
  OnWeightGradient on_weight_gradient_;
  std::map<Place, Live> live_;
  std::map<Place, at::Tensor> activations_, gradients_;  // to be sent

 private:
  struct Arriving {
    at::Tensor tensor;
    WorkPtr receipt;
  };

  void execute(const Action& action, const Objective& objective, const Microbatches& batch,
               double num_targets) {
    const Microbatch& microbatch = batch[first_ + action.microbatch];
    switch (action.kind) {
      case ActionKind::kForward: {
        const at::Tensor output = forward(action, microbatch);
        if (!is_last(action)) return;
        const at::Tensor share = objective.loss_sum(output, microbatch) / num_targets;
        if (!at::GradMode::is_enabled()) return evaluate(action.microbatch, share.item<double>());
        loss_ += share.item<double>();
        live_[place_of(action)].output = torch::autograd::impl::gradient_edge(share);
        return;
      }
      case ActionKind::kBackward:
      case ActionKind::kInputBackward:
        return backward(action, is_last(action) ? at::Tensor() : take(action));
      case ActionKind::kWeightBackward:
        return weight_backward(action);
      case ActionKind::kSendActivation:
        return send(activations_, action);
      case ActionKind::kSendGradient:
        return send(gradients_, action);
      case ActionKind::kRecvActivation:
      case ActionKind::kRecvGradient: {
        const at::Tensor tensor = at::empty(
            {microbatch.tokens.size(0), microbatch.tokens.size(1), channels_}, activation_options_);
        arriving_[{is_forward(action), place_of(action)}] = {
            tensor, stages_.recv(tensor, peer_of(action), 0)};
      }
    }
  }
  at::Tensor forward(const Action& action, const Microbatch& microbatch) {
    const at::Tensor input =
        action.chunk == 0 ? microbatch.tokens : take(action).requires_grad_(true);
    Live& live = live_[place_of(action)];
    if (action.chunk > 0) live.input = input;
    const auto& own = plan_.stages[static_cast<std::size_t>(stages_.rank())];
    const Action half = {ActionKind::kWeightBackward, action.chunk, action.microbatch};
    const bool is_cut = std::find(own.begin(), own.end(), half) != own.end();
    const DeferWeightGradients scope(is_cut ? live.weight_gradients.get() : nullptr);
    at::Tensor output = chunk_of(action).forward(input);
    if (!is_last(action)) {
      if (at::GradMode::is_enabled()) live.output = torch::autograd::impl::gradient_edge(output);
      activations_[place_of(action)] = output.detach();
    }
    return output;
  }

  static bool is_forward(const Action& action) {
    return action.kind == ActionKind::kForward || action.kind == ActionKind::kRecvActivation;
  }
  at::Tensor take(const Action& action) {
    Arriving arrived =
        std::move(arriving_.extract({is_forward(action), place_of(action)}).mapped());
    arrived.receipt->wait();
    return arrived.tensor;
  }
  int peer_of(const Action& message) const { return plan_.stage_of(other_end(message).chunk); }
  void send(std::map<Place, at::Tensor>& tensors, const Action& action) {
    if (sends_.size() == 2) finish_send();
    check(tensors.contains(place_of(action)), to_string(action), ": nothing has been left for it");
    sends_.push_back(stages_.send(tensors.extract(place_of(action)).mapped(), peer_of(action), 0));
  }
  void finish_send() {
    sends_.front()->wait();
    sends_.pop_front();
  }

  std::int64_t first_ = 0;  // microbatch of the flush
  std::map<std::pair<bool, Place>, Arriving> arriving_;
  std::deque<WorkPtr> sends_;
};

}  // namespace ladder::step8
