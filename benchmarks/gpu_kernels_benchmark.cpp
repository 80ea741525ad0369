// The memory bandwidth of the kernels for GPUs: bytes moved per second, and
// their share of what a copy reaches, measured in turn with them.
//
// Bytes are those that the algorithm must move, in one pass:
//
//   copy             2   per byte: one read, one write
//   AdamW           30   per parameter: master and moments in fp32, read and
//                        written; an fp32 gradient, read; a bf16 parameter, written
//   block sums       4   per fp32 element of the norm
//   fold          4 + 4N per fp32 element, of N ranks
//   cross-entropy    6   per bf16 logit: read forward, read and written backward
//   LayerNorm       16   per bf16 number of a branch that ends and of one that begins: forward
//                        reads 2 and writes 2, and so does backward, in other roles
//   GELU            10   per bf16 number: read and written forward; backward reads 2, writes 1
//
// The ATen versions move more than these bytes, and the rest does not count:
// their share shows what that costs.
#include <ATen/Functions.h>
#include <ATen/cuda/CUDAContext.h>
#include <ATen/cuda/CUDAEvent.h>
#include <benchmark/benchmark.h>
#include <torch/csrc/autograd/autograd.h>

#include <cmath>
#include <cstdio>

#include "benchmarks/training_process.hpp"
#include "common/comm/nccl/fold_kernel.hpp"
#include "common/comm/tree_fold.hpp"
#include "common/core/cuda_device.hpp"
#include "common/core/torch_types.hpp"
#include "common/model/cross_entropy_on_gpu.hpp"
#include "common/model/modules.hpp"
#include "common/optim/cuda/update_kernels.hpp"
#include "common/optim/norm.hpp"
#include "common/optim/on_gpu.hpp"

namespace ladder {
namespace {

constexpr std::int64_t kParameters = 128 << 20;  // about the smallest GPT-2
constexpr std::int64_t kTokens = 4096;           // rows of logits
constexpr std::int64_t kIgnored = -100;

at::Tensor on_gpu(at::IntArrayRef shape, at::ScalarType type = at::kFloat) {
  return at::randn(shape, at::TensorOptions().dtype(type).device(at::kCUDA));
}

// Seconds of one call, by the GPU's clock. Several calls are queued at once, so that the GPU does
// not wait for the host between them.
template <class Act>
double seconds_of(const Act& act) {
  constexpr int kCalls = 10;
  at::cuda::CUDAEvent begin(cudaEventDefault), end(cudaEventDefault);
  begin.record();
  for (int call = 0; call < kCalls; ++call) act();
  end.record();
  end.synchronize();
  return begin.elapsed_time(end) / 1e3 / kCalls;
}

void start_copy(const at::Tensor& target, const at::Tensor& source) {
  C10_CUDA_CHECK(cudaMemcpyAsync(target.mutable_data_ptr(), source.const_data_ptr(),
                                 source.nbytes(), cudaMemcpyDeviceToDevice,
                                 at::cuda::getCurrentCUDAStream()));
}

// A copy of 512 MiB comes in turn with what is measured, since a GPU that has become warm is slower.
template <class Act>
void measure(benchmark::State& state, std::int64_t num_bytes, const Act& act) {
  const at::Tensor source = on_gpu({kParameters}), target = at::empty_like(source);
  seconds_of(act);  // libtorch's allocator gets its memory
  double seconds_sum = 0, copy_seconds = 0;
  for (auto _ : state) {
    const double seconds = seconds_of(act);
    state.SetIterationTime(seconds);
    seconds_sum += seconds;
    copy_seconds += seconds_of([&] { start_copy(target, source); });
  }
  const auto bytes = static_cast<double>(num_bytes);
  state.counters["bytes"] =
      benchmark::Counter(bytes, benchmark::Counter::kIsIterationInvariantRate);
  state.counters["share"] =
      bytes / seconds_sum / (2 * static_cast<double>(source.nbytes()) / copy_seconds);
}

void copy(benchmark::State& state) {
  const at::Tensor source = on_gpu({kParameters}), target = at::empty_like(source);
  measure(state, 2 * static_cast<std::int64_t>(source.nbytes()),
          [&] { start_copy(target, source); });
}

template <class Update>
void adamw(benchmark::State& state, const Update& update) {
  const at::Tensor params = on_gpu({kParameters}), grads = on_gpu({kParameters});
  const at::Tensor exp_avg = at::zeros_like(params), exp_avg_sq = at::zeros_like(params);
  const at::Tensor rounded = params.to(at::kBFloat16);
  const AdamWStep step = {.learning_rate = 1e-6, .beta1 = 0.9, .beta2 = 0.95, .eps = 1e-8};
  measure(state, 30 * kParameters,
          [&] { update(params, grads, exp_avg, exp_avg_sq, rounded, step); });
}
void adamw_kernel(benchmark::State& state) {
  adamw(state, [](const at::Tensor& params, const at::Tensor& grads, const at::Tensor& exp_avg,
                  const at::Tensor& exp_avg_sq, const at::Tensor& rounded, const AdamWStep& step) {
    adamw_on_gpu({params}, {grads}, {exp_avg}, {exp_avg_sq}, {rounded}, step);
  });
}
void adamw_in_terms_of_aten(at::Tensor params, const at::Tensor& grads, at::Tensor exp_avg,
                            at::Tensor exp_avg_sq, at::Tensor rounded, const AdamWStep& step) {
  const auto correction = [&](double beta) {
    return 1 - std::pow(beta, static_cast<double>(step.t));
  };
  const at::Tensor g = grads.to(at::kFloat).mul(step.grad_factor);
  exp_avg.mul_(step.beta1).add_(g, 1 - step.beta1);
  exp_avg_sq.mul_(step.beta2).addcmul_(g, g, 1 - step.beta2);
  const at::Tensor denominator =
      exp_avg_sq.sqrt().div_(std::sqrt(correction(step.beta2))).add_(step.eps);
  params.mul_(1 - step.learning_rate * step.weight_decay)
      .addcdiv_(exp_avg, denominator, -step.learning_rate / correction(step.beta1));
  rounded.copy_(params);
}

void adamw_aten(benchmark::State& state) {
  adamw(state, adamw_in_terms_of_aten);
}

// Does not read the sums back, for which the host would wait.
void block_sums_kernel(benchmark::State& state) {
  const at::Tensor values = on_gpu({kParameters});
  const at::Tensor sums =
      at::empty({kParameters / kNormBlock}, values.options().dtype(at::kDouble));
  measure(state, 4 * kParameters, [&] {
    kernels::block_sums(values.const_data_ptr(), at::kFloat, sums.mutable_data_ptr<double>(),
                        kParameters, at::cuda::getCurrentCUDAStream());
  });
}

void fold_kernel(benchmark::State& state) {
  constexpr std::int64_t kElements = kParameters / 4;
  const at::Tensor received = on_gpu({state.range(0), kElements}), target = on_gpu({kElements});
  std::vector<std::byte*> pieces;
  for (std::int64_t rank = 0; rank < state.range(0); ++rank)
    pieces.push_back(data_of(received[rank]));
  measure(state, 4 * (state.range(0) + 1) * kElements, [&] {
    fold_on_gpu(pieces, /*own=*/0, data_of(target), at::kFloat, kElements,
                at::cuda::getCurrentCUDAStream());
  });
}

// Forward and backward.
template <class LossSum>
void cross_entropy(benchmark::State& state, const LossSum& loss_sum) {
  const std::int64_t num_classes = state.range(0);
  const at::Tensor logits = on_gpu({kTokens, num_classes}, at::kBFloat16).set_requires_grad(true);
  const at::Tensor targets =
      at::randint(num_classes, {kTokens}, logits.options().dtype(at::kLong).requires_grad(false));
  measure(state, 6 * kTokens * num_classes,
          [&] { torch::autograd::grad({loss_sum(logits, targets)}, {logits}); });
}
void cross_entropy_kernel(benchmark::State& state) {
  cross_entropy(state, [](const at::Tensor& logits, const at::Tensor& targets) {
    return cross_entropy_sum_on_gpu(logits, targets, kIgnored);
  });
}
void cross_entropy_aten(benchmark::State& state) {
  cross_entropy(state, [](const at::Tensor& logits, const at::Tensor& targets) {
    return at::cross_entropy_loss(widened(logits), targets, /*weight=*/{}, at::Reduction::Sum,
                                  kIgnored);
  });
}

at::Tensor bf16_leaf(at::IntArrayRef shape) {
  at::Tensor leaf = on_gpu(shape, at::kBFloat16).set_requires_grad(true);
  leaf.set_grad_dtype(at::kFloat);
  return leaf;
}

// Forward and backward, with the gradients of weight and bias: GPT-2 124M's rows, 16 times.
constexpr std::int64_t kRows = 16'384, kChannels = 768;

template <class ForkFunction>
void layer_norm(benchmark::State& state, const ForkFunction& fork) {
  const at::Tensor x = bf16_leaf({kRows, kChannels}), branch = bf16_leaf({kRows, kChannels});
  const LayerNorm norm = {bf16_leaf({kChannels}), bf16_leaf({kChannels})};
  const at::Tensor dy = at::randn_like(x.detach());
  measure(state, 16 * kRows * kChannels, [&] {
    const Fork forked = fork(norm, x, branch);
    torch::autograd::grad({forked.stream, forked.normed}, {x, branch, norm.weight, norm.bias},
                          {dy, dy});
  });
}
void layer_norm_kernels(benchmark::State& state) {
  layer_norm(state, [](const LayerNorm& norm, const at::Tensor& x, const at::Tensor& branch) {
    return norm.fork(x, branch);
  });
}
void layer_norm_aten(benchmark::State& state) {
  layer_norm(state, [](const LayerNorm& norm, const at::Tensor& x, const at::Tensor& branch) {
    const at::Tensor sum = x + branch;
    return Fork{sum, at::layer_norm(sum, {kChannels}, norm.weight, norm.bias)};
  });
}

template <class Gelu>
void bias_gelu(benchmark::State& state, const Gelu& gelu) {
  const at::Tensor x = bf16_leaf({kRows, 4 * kChannels}), bias = bf16_leaf({4 * kChannels});
  const at::Tensor dy = at::randn_like(x.detach());
  measure(state, 10 * kRows * 4 * kChannels, [&] {
    torch::autograd::grad({gelu(x, bias)}, {x, bias}, {dy});
  });
}
void bias_gelu_kernels(benchmark::State& state) {
  bias_gelu(state, bias_gelu_on_gpu);
}
// This adds a bias that the product in front of it would add on the way.
void bias_gelu_aten(benchmark::State& state) {
  bias_gelu(state,
            [](const at::Tensor& x, const at::Tensor& bias) { return at::gelu(x + bias, "tanh"); });
}

void on_events(benchmark::internal::Benchmark* benchmark) {
  benchmark->UseManualTime()->Unit(benchmark::kMillisecond)->MinTime(0.1);  // of one call in ten
}
// GPT-2's vocabulary, and the same padded to a multiple of 64.
void vocabularies(benchmark::internal::Benchmark* benchmark) {
  benchmark->ArgName("vocabulary")->Arg(50257)->Arg(50304)->Apply(on_events);
}
BENCHMARK(copy)->Apply(on_events);
BENCHMARK(adamw_kernel)->Apply(on_events);
BENCHMARK(adamw_aten)->Apply(on_events);
BENCHMARK(block_sums_kernel)->Apply(on_events);
BENCHMARK(fold_kernel)->ArgName("ranks")->Arg(2)->Arg(4)->Arg(8)->Apply(on_events);
BENCHMARK(cross_entropy_kernel)->Apply(vocabularies);
BENCHMARK(cross_entropy_aten)->Apply(vocabularies);
BENCHMARK(layer_norm_kernels)->Apply(on_events);
BENCHMARK(layer_norm_aten)->Apply(on_events);
BENCHMARK(bias_gelu_kernels)->Apply(on_events);
BENCHMARK(bias_gelu_aten)->Apply(on_events);

}  // namespace
}  // namespace ladder

int main(int argc, char** argv) {
  if (const std::string problem = ladder::cuda_problem(); !problem.empty()) {
    std::fprintf(stderr, "gpu_kernels_benchmark: %s\n", problem.c_str());
    return 2;
  }
  ladder::set_deterministic(true);
  return ladder::run_benchmarks(argc, argv);
}
