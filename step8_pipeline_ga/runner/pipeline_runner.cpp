#include "step8_pipeline_ga/runner/pipeline_runner.hpp"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/constant_pad_nd.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/ones.h>
#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/variable.h>

#include <algorithm>
#include <deque>
#include <memory>
#include <utility>

#include "common/core/check.hpp"
#include "common/core/trace.hpp"
#include "common/model/weight_gradients.hpp"
#include "step8_pipeline_ga/schedule/schedule_check.hpp"

namespace ladder {
namespace {

constexpr int kMessageTag = 0;  // the same for all messages
constexpr std::size_t kSendsInFlight = 2;

}  // namespace

// One run of a plan on this stage.
class PipelineRunner::Execution {
 public:
  Execution(PipelineRunner& runner, const PipelinePlan& plan, const Microbatch* microbatches)
      : runner_(runner), plan_(plan), microbatches_(microbatches) {}

  // Called on the last stage with the last chunk's output for a microbatch. Returns what backward
  // starts from, [].
  std::function<at::Tensor(const at::Tensor& output, std::int64_t microbatch)> on_output;
  OnWeightGradient on_weight_gradient;

  void run() {
    for (const Action& action : own_actions()) {
      const at::Tensor received = wait_for_input(action);
      const Span span(name_of(action.kind), {"microbatch", action.microbatch},
                      {"chunk", action.chunk});
      execute(action, received);
    }
    while (!sends_.empty()) finish_oldest_send();
  }

 private:
  using Place = std::pair<int, std::int64_t>;  // a chunk and a microbatch
  // A microbatch in a chunk, between its forward and the end of its backward.
  struct Live {
    at::Tensor input;              // a leaf if its gradient is wanted
    torch::autograd::Edge output;  // where backward begins
    // The graph refers to it, so it stays where it is when this is moved.
    std::unique_ptr<WeightGradientQueue> weight_gradients = std::make_unique<WeightGradientQueue>();
  };
  struct Arriving {
    at::Tensor tensor;
    WorkPtr receipt;
  };

  const std::vector<Action>& own_actions() const {
    return plan_.stages[static_cast<std::size_t>(runner_.stages_.rank())];
  }
  bool is_last(const Action& action) const { return action.chunk + 1 == plan_.num_chunks(); }
  // Whether the backward of this forward is cut in two.
  bool is_cut(const Action& forward) const {
    const Action wgrad = {ActionKind::kWeightBackward, forward.chunk, forward.microbatch};
    return std::find(own_actions().begin(), own_actions().end(), wgrad) != own_actions().end();
  }
  static Place place_of(const Action& action) { return {action.chunk, action.microbatch}; }
  // What an earlier action has left for this one.
  template <class Value>
  static Value take(std::map<Place, Value>& left, const Action& action) {
    check(left.contains(place_of(action)), to_string(action), ": nothing has been left for it");
    return std::move(left.extract(place_of(action)).mapped());
  }

  // What this forward or backward needs from another stage; undefined if nothing.
  at::Tensor wait_for_input(const Action& action) {
    const bool is_forward = action.kind == ActionKind::kForward;
    const bool is_backward =
        action.kind == ActionKind::kBackward || action.kind == ActionKind::kInputBackward;
    if (!(is_forward && action.chunk > 0) && !(is_backward && !is_last(action))) return {};
    auto& arriving = is_forward ? arriving_activations_ : arriving_gradients_;
    const Arriving arrived = take(arriving, action);
    arrived.receipt->wait();
    return arrived.tensor;
  }

  void execute(const Action& action, const at::Tensor& received) {
    switch (action.kind) {
      case ActionKind::kForward:
        return forward(action, received);
      case ActionKind::kBackward:
      case ActionKind::kInputBackward:
        return backward(action, received);
      case ActionKind::kWeightBackward:
        return weight_backward(action);
      case ActionKind::kSendActivation:
        return send(activations_, action, action.chunk + 1);
      case ActionKind::kSendGradient:
        return send(gradients_, action, action.chunk - 1);
      case ActionKind::kRecvActivation:
        return recv(arriving_activations_, action, action.chunk - 1);
      case ActionKind::kRecvGradient:
        return recv(arriving_gradients_, action, action.chunk + 1);
    }
  }

  void forward(const Action& action, at::Tensor input) {
    const bool is_training = at::GradMode::is_enabled();
    Live& live = live_[place_of(action)];
    if (action.chunk > 0 && is_training) live.input = input.requires_grad_(true);
    if (action.chunk == 0) input = microbatches_[action.microbatch].tokens;
    const DeferWeightGradients scope(is_cut(action) ? live.weight_gradients.get() : nullptr);
    const Model& chunk = runner_.chunks_[static_cast<std::size_t>(action.chunk / plan_.num_stages)];
    at::Tensor output = chunk.forward(input);
    if (is_last(action)) {
      output = on_output(output, action.microbatch);
    } else {
      activations_[place_of(action)] = output.detach().contiguous();
    }
    if (is_training) {
      live.output = torch::autograd::impl::gradient_edge(output);
    } else {
      live_.erase(place_of(action));
    }
  }

  // All of it, or only the dgrad if the plan has the wgrad elsewhere. `received`: the
  // gradient of the chunk's output; undefined if this is the last chunk, whose output is the loss.
  void backward(const Action& action, const at::Tensor& received) {
    Live& live = live_.at(place_of(action));
    const at::Tensor root = at::ones({}, runner_.activation_options_.dtype(at::kFloat));
    torch::autograd::Engine::get_default_engine().execute(
        {std::exchange(live.output, {})}, {is_last(action) ? root : received},
        /*keep_graph=*/false, /*create_graph=*/false, /*accumulate_grad=*/true);
    if (action.chunk > 0) {
      gradients_[place_of(action)] = live.input.grad().contiguous();
      live.input.reset();
    }
    if (action.kind == ActionKind::kBackward) live_.erase(place_of(action));
  }

  void weight_backward(const Action& action) {
    take(live_, action).weight_gradients->run(on_weight_gradient);
  }

  void send(std::map<Place, at::Tensor>& tensors, const Action& action, int to_chunk) {
    if (sends_.size() == kSendsInFlight) finish_oldest_send();
    const at::Tensor tensor = take(tensors, action);
    sends_.push_back(runner_.stages_.send(tensor, plan_.stage_of(to_chunk), kMessageTag));
  }

  void finish_oldest_send() {
    sends_.front()->wait();
    sends_.pop_front();
  }

  void recv(std::map<Place, Arriving>& arriving, const Action& action, int from_chunk) {
    const at::Tensor& tokens = microbatches_[action.microbatch].tokens;
    const std::int64_t own = runner_.chunks_.front().parts.own_rows(tokens.size(1));
    const at::Tensor tensor =
        at::empty({tokens.size(0), own, runner_.channels_}, runner_.activation_options_);
    arriving[place_of(action)] = {
        tensor, runner_.stages_.recv(tensor, plan_.stage_of(from_chunk), kMessageTag)};
  }

  PipelineRunner& runner_;
  const PipelinePlan& plan_;
  const Microbatch* microbatches_;
  std::map<Place, Live> live_;
  std::map<Place, at::Tensor> activations_, gradients_;  // computed here, still to be sent
  std::map<Place, Arriving> arriving_activations_, arriving_gradients_;
  std::deque<WorkPtr> sends_;  // each holds its tensor
};

PipelineRunner::PipelineRunner(std::vector<Model> chunks, std::int64_t channels,
                               Communicator& stages, Planner planner,
                               const at::TensorOptions& activations)
    : chunks_(std::move(chunks)),
      channels_(channels),
      activation_options_(activations),
      stages_(stages),
      planner_(std::move(planner)) {}

const PipelinePlan& PipelineRunner::plan_of(std::int64_t num_microbatches, bool is_training) {
  const auto [found, is_new] = plans_.try_emplace({num_microbatches, is_training});
  if (is_new) {
    found->second = is_training ? planner_(num_microbatches)
                                : plan_forwards(stages_.size(), num_microbatches,
                                                static_cast<int>(chunks_.size()));
    check_plan(found->second);
  }
  return found->second;
}

double PipelineRunner::accumulate_gradients(const Objective& objective, const Microbatches& batch,
                                            double num_targets, std::int64_t num_microbatches,
                                            const OnWeightGradient& on_weight_gradient) {
  check(num_targets >= 0, "a step has ", num_targets, " target tokens, it must be 0 or more");
  const double mean_over = std::max(num_targets, 1.0);  // padding alone has a loss of 0
  at::Tensor loss;  // stays on the device until the end: reading it would wait for the device
  for (std::int64_t first = 0; first < batch.size(); first += num_microbatches) {
    const std::int64_t count = std::min(num_microbatches, batch.size() - first);
    Execution flush(*this, plan_of(count, /*is_training=*/true), &batch[first]);
    flush.on_weight_gradient = on_weight_gradient;
    flush.on_output = [&](const at::Tensor& output, std::int64_t microbatch) {
      const at::Tensor share =
          objective.loss_sum({output, chunks_.back().parts}, batch[first + microbatch]) / mean_over;
      const at::Tensor value = share.detach().to(at::kDouble);
      loss = loss.defined() ? loss + value : value;
      return share;
    };
    flush.run();
  }
  return loss.defined() ? loss.item<double>() : 0;
}

void PipelineRunner::forward(const Microbatches& batch, const OutputVisitor& visit) {
  const at::NoGradGuard no_grad;
  if (batch.size() == 0) return;
  Execution run(*this, plan_of(batch.size(), /*is_training=*/false), &batch[0]);
  run.on_output = [&](const at::Tensor& output, std::int64_t microbatch) {
    visit(output, microbatch);
    return output;
  };
  run.run();
}

std::vector<double> PipelineRunner::loss_sums(const Objective& objective,
                                              const Microbatches& batch) {
  std::vector<double> sums(static_cast<std::size_t>(batch.size()));
  forward(batch, [&](const at::Tensor& output, std::int64_t microbatch) {
    sums[static_cast<std::size_t>(microbatch)] =
        objective.loss_sum({output, chunks_.back().parts}, batch[microbatch]).item<double>();
  });
  return sums;
}

at::Tensor PipelineRunner::forward(const at::Tensor& tokens) {
  at::Tensor output;
  const Parts& parts = chunks_.front().parts;
  const std::int64_t T = tokens.size(1), owners = parts.gather_rows ? parts.num_owners() : 1;
  // Rows that are cut must divide; no token sees those behind it.
  const at::Tensor padded =
      at::constant_pad_nd(tokens, {0, (T + owners - 1) / owners * owners - T});
  forward(Microbatches({Microbatch{padded, {}}}),
          [&](const at::Tensor& logits, std::int64_t /*microbatch*/) {
            output = logits.slice(/*dim=*/1, T - 1, T).contiguous();
          });
  const int last = stages_.size() - 1;
  const at::Tensor width = at::empty({1}, at::kLong);
  if (output.defined()) width.fill_(output.size(-1));
  stages_.broadcast(width, last)->wait();
  if (!output.defined())
    output = at::empty({tokens.size(0), 1, width.item<std::int64_t>()}, activation_options_);
  stages_.broadcast(output, last)->wait();
  return output;
}

}  // namespace ladder
