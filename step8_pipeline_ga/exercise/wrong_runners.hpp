// Runners that look right and are not: each is the right one but for what it overrides.
#pragma once

#include <ATen/ops/ones.h>

#include <utility>
#include <vector>

#include "step8_pipeline_ga/exercise/right_runner.hpp"

namespace ladder::step8 {

struct WrongRunner : RightRunner {
  using RightRunner::RightRunner;
};

struct NotWritten : WrongRunner {
  using WrongRunner::WrongRunner;
  void backward(const Action& /*action*/, const at::Tensor& /*received*/) override {
    not_implemented("step8_pipeline_ga: backward()");
  }
};

// ---- where backward begins

// Scales the loss by the number of microbatches, although it is a share already.
struct ScalesTheLoss : WrongRunner {
  using WrongRunner::WrongRunner;
  at::Tensor first_gradient(const Action& action, const at::Tensor& received) override {
    const at::Tensor gradient = WrongRunner::first_gradient(action, received);
    return is_last(action) ? gradient / static_cast<double>(plan_.num_microbatches) : gradient;
  }
};
struct ScalesOnEveryStage : WrongRunner {
  using WrongRunner::WrongRunner;
  at::Tensor first_gradient(const Action& action, const at::Tensor& received) override {
    const at::Tensor gradient = WrongRunner::first_gradient(action, received);
    return is_last(action) ? gradient : gradient / static_cast<double>(plan_.num_microbatches);
  }
};
struct StartsFromOnes : WrongRunner {  // on all stages
  using WrongRunner::WrongRunner;
  at::Tensor first_gradient(const Action& action, const at::Tensor& received) override {
    return is_last(action) ? at::ones({}) : at::ones(received.sizes());
  }
};
struct ForgetsTheLossScale : WrongRunner {
  using WrongRunner::WrongRunner;
  at::Tensor first_gradient(const Action& action, const at::Tensor& received) override {
    return is_last(action) ? at::ones({}) : received;
  }
};
struct LossScaleIn16Bits : WrongRunner {  // in which 65536 is infinite
  using WrongRunner::WrongRunner;
  at::Tensor first_gradient(const Action& action, const at::Tensor& received) override {
    return is_last(action) ? at::full({}, loss_scale_, activation_options_) : received;
  }
};
struct LossScaleOnEveryStage : WrongRunner {
  using WrongRunner::WrongRunner;
  at::Tensor first_gradient(const Action& action, const at::Tensor& received) override {
    return is_last(action) ? at::full({}, loss_scale_) : received * loss_scale_;
  }
};
struct LatestLive : WrongRunner {  // goes backward through the microbatch that went forward last
  using WrongRunner::WrongRunner;
  Live& live_of(const Action& action) override {
    auto latest = live_.find(place_of(action));
    for (auto it = live_.begin(); it != live_.end(); ++it) {
      if (it->first.first == action.chunk && it->second.output.is_valid()) latest = it;
    }
    return latest->second;
  }
  void release(const Action& action, Live& live) override {
    if (action.kind == ActionKind::kInputBackward) return;
    std::erase_if(live_, [&](const auto& entry) { return &entry.second == &live; });
  }
};

// ---- what is added

struct ForgetsSharedLeaves : WrongRunner {  // those that are in another layer's unit
  using WrongRunner::WrongRunner;
  void run_backward(const Action& action, Live& live, const at::Tensor& gradient) override {
    torch::autograd::edge_list leaves;
    if (live.input.defined()) leaves.push_back(torch::autograd::impl::gradient_edge(live.input));
    for (const Unit& unit : chunk_of(action).units()) {
      for (const NamedTensor& leaf : unit.tensors)
        leaves.push_back(torch::autograd::impl::gradient_edge(leaf.tensor));
    }
    torch::autograd::Engine::get_default_engine().execute(
        {std::exchange(live.output, {})}, {gradient},
        /*keep_graph=*/false, /*create_graph=*/false,
        /*accumulate_grad=*/true, leaves);
  }
};
struct OverwritesGradients : WrongRunner {
  using WrongRunner::WrongRunner;
  void run_backward(const Action& action, Live& live, const at::Tensor& gradient) override {
    for (const Unit& unit : chunk_of(action).units()) {
      for (const NamedTensor& leaf : unit.tensors) leaf.tensor.mutable_grad().reset();
    }
    WrongRunner::run_backward(action, live, gradient);
  }
};
struct GoesBackwardTwice : WrongRunner {
  using WrongRunner::WrongRunner;
  void run_backward(const Action& /*action*/, Live& live, const at::Tensor& gradient) override {
    execute_engine(live.output, gradient, /*keep_graph=*/true);
    execute_engine(std::exchange(live.output, {}), gradient);
  }
};

// ---- what is sent

struct PassesOnWhatItReceived : WrongRunner {
  using WrongRunner::WrongRunner;
  at::Tensor gradient_to_send(const Action& action, Live& live,
                              const at::Tensor& received) override {
    return is_last(action) ? live.input.grad() : received;
  }
};
struct SendsItself : WrongRunner {  // although the plan says when
  using WrongRunner::WrongRunner;
  void backward(const Action& action, const at::Tensor& received) override {
    WrongRunner::backward(action, received);
    if (action.chunk > 0)
      stages_.send(gradients_.at(place_of(action)), plan_.stage_of(action.chunk - 1), 0)->wait();
  }
};
struct SendsNothing : WrongRunner {
  using WrongRunner::WrongRunner;
  void backward(const Action& action, const at::Tensor& received) override {
    WrongRunner::backward(action, received);
    gradients_.clear();
  }
};

// ---- what is kept

struct KeepsTheGraph : WrongRunner {  // until the flush is over
  using WrongRunner::WrongRunner;
  void run_backward(const Action& /*action*/, Live& live, const at::Tensor& gradient) override {
    execute_engine(live.output, gradient, /*keep_graph=*/true);
  }
  void release(const Action& /*action*/, Live& live) override { live.input.reset(); }
  void end_flush() override { live_.clear(); }
};
struct KeepsTheInput : WrongRunner {
  using WrongRunner::WrongRunner;
  void release(const Action& /*action*/, Live& /*live*/) override {}
  void end_flush() override { live_.clear(); }
};
struct KeepsWhatItReceived : WrongRunner {
  using WrongRunner::WrongRunner;
  void release(const Action& action, Live& live) override {
    WrongRunner::release(action, live);
    if (received_.defined()) kept_.push_back(received_);
  }
  at::Tensor first_gradient(const Action& action, const at::Tensor& received) override {
    received_ = received;
    return WrongRunner::first_gradient(action, received);
  }
  void end_flush() override { kept_.clear(), received_.reset(); }
  at::Tensor received_;
  std::vector<at::Tensor> kept_;
};
struct KeepsACopy : WrongRunner {  // of each input's gradient
  using WrongRunner::WrongRunner;
  void release(const Action& action, Live& live) override {
    copies_.push_back(live.input.defined() ? live.input.grad().clone() : at::ones({100}));
    WrongRunner::release(action, live);
  }
  std::vector<at::Tensor> copies_;
};

// ---- weight halves

struct WeightHalvesAtOnce : WrongRunner {
  using WrongRunner::WrongRunner;
  void release(const Action& action, Live& live) override {
    live.weight_gradients->run(on_weight_gradient_);
    WrongRunner::release(action, live);
  }
};
struct ForgetsWeightHalves : WrongRunner {
  using WrongRunner::WrongRunner;
  void weight_backward(const Action& action) override { live_.erase(place_of(action)); }
};
struct TellsNobody : WrongRunner {
  using WrongRunner::WrongRunner;
  void weight_backward(const Action& action) override {
    live_.at(place_of(action)).weight_gradients->run();
    live_.erase(place_of(action));
  }
};
struct KeepsTheInputForTheWeightHalf : WrongRunner {  // which does not read it
  using WrongRunner::WrongRunner;
  void release(const Action& action, Live& live) override {
    if (action.kind == ActionKind::kBackward) WrongRunner::release(action, live);
  }
};
struct NeedsAListener : WrongRunner {
  using WrongRunner::WrongRunner;
  void weight_backward(const Action& action) override {
    if (on_weight_gradient_) return WrongRunner::weight_backward(action);
    live_.erase(place_of(action));
  }
};
struct ReportsTheFirstParameter : WrongRunner {  // again and again
  using WrongRunner::WrongRunner;
  void weight_backward(const Action& action) override {
    at::Tensor first;
    live_.at(place_of(action)).weight_gradients->run([&](const at::Tensor& parameter) {
      if (!first.defined()) first = parameter;
      if (on_weight_gradient_) on_weight_gradient_(first);
    });
    live_.erase(place_of(action));
  }
};

// ---- the loss that is returned

struct ReturnsNothing : WrongRunner {
  using WrongRunner::WrongRunner;
  double returned_loss() override { return 0; }
};
struct ReturnsTheLastFlush : WrongRunner {
  using WrongRunner::WrongRunner;
  void begin_flush() override { loss_ = 0; }
};
struct ReturnsTheScaledLoss : WrongRunner {
  using WrongRunner::WrongRunner;
  double returned_loss() override { return loss_ * loss_scale_; }
};

// ---- evaluations

struct EvaluatesTheLast : WrongRunner {
  using WrongRunner::WrongRunner;
  void evaluate(std::int64_t /*microbatch*/, double loss_sum) override {
    loss_sums_.back() = loss_sum;
  }
};
struct KeepsEvaluations : WrongRunner {
  using WrongRunner::WrongRunner;
  void end_evaluation() override {}
};

}  // namespace ladder::step8
