#include "step0_single_gpu/cuda_graphs/cuda_graphs.hpp"

#ifdef LADDER_WITH_CUDA
#include <ATen/core/grad_mode.h>
#include <ATen/core/ivalue.h>
#include <ATen/cuda/CUDAEvent.h>
#include <ATen/cuda/CUDAGraph.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAFunctions.h>
#include <c10/cuda/CUDAGuard.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/variable.h>
#endif

#include <functional>
#include <utility>

#include "common/core/check.hpp"
#include "common/core/cuda_device.hpp"
#include "common/core/memory_ledger.hpp"

namespace ladder {

#ifdef LADDER_WITH_CUDA

namespace {

using at::cuda::CUDAGraph;
using at::cuda::CUDAStream;
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

constexpr int kNumWarmups = 3;  // as make_graphed_callables
constexpr const char* kInputScope = "input of CUDA graphs";
constexpr const char* kScope = "CUDA graphs";  // that have been captured

void let_wait(const CUDAStream& other, const CUDAStream& waiting) {
  at::cuda::CUDAEvent reached;
  reached.record(other);
  reached.block(waiting);
}

// Records what `launch` enqueues on the current stream, from whatever thread.
//
// Thread-local mode: calls that a graph cannot hold, for example asking an event whether it has
// happened, are errors on this thread only. In global mode, libtorch's default, they are errors on
// every thread, and NCCL's watchdog makes such a call whenever it likes. In both modes autograd's
// thread can launch into the capture, which belongs to the stream and not to this thread.
void capture(CUDAGraph& graph, c10::MempoolId_t pool, const std::function<void()>& launch) {
  {
    const MemoryScope scope(MemoryCategory::kOther, kScope);  // a random generator's state
    graph.capture_begin(pool, cudaStreamCaptureModeThreadLocal);
  }
  try {
    launch();
  } catch (...) {
    try {
      graph.capture_end();         // or this stream would go on capturing
    } catch (const c10::Error&) {  // follows from the error that is thrown below
    }
    throw;
  }
  graph.capture_end();
}

// The two graphs, the buffers at their ends, and how far they are.
class LossGraphs : public torch::CustomClassHolder {
 public:
  LossGraphs(LossSum loss_sum, const FlatGradients& grads)
      : loss_sum_(std::move(loss_sum)),
        grads_(grads),
        stream_(at::cuda::getStreamFromPool(/*isHighPriority=*/false)),
        anchor_(at::empty({0}, grads.flat().options()).set_requires_grad(true)) {}

  // True once there are graphs, if they fit this microbatch. Captures them when it is time.
  bool can_replay(const Microbatch& microbatch);
  at::Tensor run_as_usual(const Microbatch& microbatch);

  at::Tensor replay_forward(const Microbatch& microbatch);  // -> [], a copy
  void replay_backward(const at::Tensor& upstream);         // [], the gradient of the loss

  // Autograd runs a function's backward only if one of its inputs requires a gradient. The graph
  // itself adds to the parameters' .grad, so this tensor is the input in their place, and never
  // gets a gradient.
  const at::Tensor& anchor() const { return anchor_; }

 private:
  void start_over_with(const Microbatch& larger);
  bool fits(const Microbatch& microbatch) const;
  void check_no_hooks() const;
  void check_no_accumulators() const;
  void capture_both();

  LossSum loss_sum_;
  const FlatGradients& grads_;
  CUDAStream stream_;  // of the warm-up and the capture; a graph is launched on the caller's
  at::Tensor anchor_;
  at::Tensor tokens_ = at::empty({0}), targets_;  // [B, T] int64, of the largest B so far
  at::Tensor loss_, upstream_;                    // [] fp32
  int num_warmups_ = 0;
  bool is_captured_ = false;
  bool is_backward_due_ = false;
  CUDAGraph forward_, backward_;  // last, so that they go before the buffers that they use
};

bool LossGraphs::can_replay(const Microbatch& microbatch) {
  if (!at::GradMode::is_enabled()) return false;
  if (!is_captured_ && microbatch.tokens.numel() > tokens_.numel()) start_over_with(microbatch);
  if (!fits(microbatch) || num_warmups_ < kNumWarmups) return false;
  check_no_hooks();
  if (!is_captured_) capture_both();
  return true;
}

// The first microbatch of a run that goes on at an epoch's end has fewer rows than the next ones.
void LossGraphs::start_over_with(const Microbatch& larger) {
  const MemoryScope scope(MemoryCategory::kOther, kInputScope);
  const at::TensorOptions on_gpu = at::TensorOptions().device(grads_.flat().device());
  tokens_ = at::empty_like(larger.tokens, on_gpu.dtype(at::kLong));
  targets_ = at::empty_like(larger.targets, on_gpu.dtype(at::kLong));
  num_warmups_ = 0;
}

bool LossGraphs::fits(const Microbatch& microbatch) const {
  return microbatch.tokens.sizes() == tokens_.sizes() &&
         microbatch.targets.sizes() == targets_.sizes();
}

at::Tensor LossGraphs::run_as_usual(const Microbatch& microbatch) {
  if (!at::GradMode::is_enabled() || !fits(microbatch)) return loss_sum_(microbatch);
  // The warm-up sets up what belongs to a stream or a thread, such as cuBLAS's workspaces. Autograd
  // runs each backward on the stream of its forward, and orders it with the caller's.
  ++num_warmups_;
  const CUDAStream caller = at::cuda::getCurrentCUDAStream();
  let_wait(caller, stream_);
  at::Tensor loss;
  {
    const c10::cuda::CUDAStreamGuard guard(stream_);
    loss = loss_sum_(microbatch);
  }
  let_wait(stream_, caller);
  c10::cuda::CUDACachingAllocator::recordStream(loss.storage().data_ptr(), caller);
  return loss;
}

void LossGraphs::check_no_hooks() const {
  for (const NamedTensor& leaf : grads_.leaves()) {
    if (!leaf.tensor.requires_grad()) continue;
    check(torch::autograd::impl::hooks(leaf.tensor).empty() &&
              torch::autograd::impl::post_acc_grad_hooks(leaf.tensor) == nullptr,
          "CUDA graphs: parameter '", leaf.name,
          "' has a hook, which a graph's backward would not call: train without graphs");
  }
}

// The node that adds to a parameter's .grad runs on the stream that was current when it was made,
// and lives as long as an autograd graph holds it. The capture needs new ones, on its own stream.
void LossGraphs::check_no_accumulators() const {
  for (const NamedTensor& leaf : grads_.leaves()) {
    check(torch::autograd::impl::try_get_grad_accumulator(leaf.tensor) == nullptr,
          "CUDA graphs: parameter '", leaf.name,
          "' is still held by an autograd graph from before the capture: let go of earlier "
          "losses, or train without graphs");
  }
}

void LossGraphs::capture_both() {
  check_no_accumulators();
  // The warm-up's activations are free, but cached for its stream: the graphs need that room.
  c10::cuda::device_synchronize();
  c10::cuda::CUDACachingAllocator::emptyCache();
  const c10::cuda::CUDAStreamGuard guard(stream_);
  {
    const MemoryScope scope(MemoryCategory::kOther, kScope);
    loss_ = at::empty({}, grads_.flat().options().dtype(at::kFloat).requires_grad(false));
    upstream_ = at::empty_like(loss_);
  }
  // One pool for both: what forward saves stays allocated until backward has been captured.
  const c10::MempoolId_t pool = at::cuda::graph_pool_handle();
  at::Tensor loss;
  capture(forward_, pool, [&] {
    loss = loss_sum_({.tokens = tokens_, .targets = targets_});
    check(loss.dim() == 0 && loss.scalar_type() == at::kFloat,
          "CUDA graphs: a summed loss is one fp32 number, not ", loss.scalar_type(), " ",
          loss.sizes());
    loss_.copy_(loss.detach());
  });
  capture(backward_, pool, [&] { loss.backward(upstream_); });
  is_captured_ = true;
}

at::Tensor LossGraphs::replay_forward(const Microbatch& microbatch) {
  check(!std::exchange(is_backward_due_, true),
        "CUDA graphs: this forward would overwrite what the previous one keeps for its backward, "
        "which has not run");
  tokens_.copy_(microbatch.tokens, /*non_blocking=*/true);
  targets_.copy_(microbatch.targets, /*non_blocking=*/true);
  forward_.replay();
  return loss_.clone();  // the next forward overwrites loss_
}

void LossGraphs::replay_backward(const at::Tensor& upstream) {
  check(std::exchange(is_backward_due_, false),
        "CUDA graphs: a second backward of the same forward, whose activations are gone");
  upstream_.copy_(upstream);
  backward_.replay();
}

// Both on the caller's stream: autograd runs backward on the stream of its forward.
struct Replay : torch::autograd::Function<Replay> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& /*anchor*/,
                            const c10::intrusive_ptr<LossGraphs>& graphs,
                            const Microbatch& microbatch) {
    context->saved_data["graphs"] = c10::IValue::make_capsule(graphs);
    return graphs->replay_forward(microbatch);
  }

  static variable_list backward(AutogradContext* context, const variable_list& outputs) {
    const auto graphs = context->saved_data["graphs"].toCapsule();
    static_cast<LossGraphs&>(*graphs).replay_backward(outputs[0]);
    return variable_list(3);  // no gradient for any input
  }
};

}  // namespace

LossSum captured(LossSum loss_sum, const FlatGradients& grads) {
  const auto graphs = c10::make_intrusive<LossGraphs>(std::move(loss_sum), grads);
  return [graphs](const Microbatch& microbatch) {
    return graphs->can_replay(microbatch) ? Replay::apply(graphs->anchor(), graphs, microbatch)
                                          : graphs->run_as_usual(microbatch);
  };
}

#else

LossSum captured(LossSum /*loss_sum*/, const FlatGradients& /*grads*/) {
  throw CheckError("CUDA graphs: " + cuda_problem());
}

#endif

}  // namespace ladder
