// The optimizer's memory bandwidth: bytes moved per second, compared with a
// plain copy.
//
// An optimizer does so little arithmetic that it is memory-bound. Bytes are
// those that the algorithm must move, per parameter in fp32:
//
//   copy        8   one read, one write
//   AdamW      28   reads p, g, m, v and writes p, m, v
//   SGD        12   reads p, g and writes p
//   norm        4   reads g
//   clip       12   the norm; if it is too large, also reads and writes g
//   zero_grad   4   writes g
//
// A step that allocates tensor memory is an error here; the ledger counts its
// allocations. Data that fits into the caches (the smallest size) moves faster
// than memory allows.
#include <ATen/core/Tensor.h>
#include <ATen/ops/randn.h>
#include <benchmark/benchmark.h>

#include <cstring>

#include "benchmarks/training_process.hpp"
#include "common/core/memory_ledger.hpp"
#include "common/optim/flat_model.hpp"
#include "common/optim/norm.hpp"
#include "common/optim/optimizer.hpp"

namespace ladder {
namespace {

// num_parameters fp32 parameters with their gradients; most have weight decay.
class Subject {
 public:
  explicit Subject(std::int64_t num_parameters)
      : flat_({{"unit",
                {{"weight", leaf({num_parameters / 1024 - 1, 1024})}, {"bias", leaf({1024})}}}}),
        grads_(flat_) {
    grads_.flat().copy_(at::randn({flat_.layout().numel}));
  }
  FlatModel& flat() { return flat_; }
  FlatGradients& grads() { return grads_; }

 private:
  static at::Tensor leaf(at::IntArrayRef shape) { return at::randn(shape).set_requires_grad(true); }
  FlatModel flat_;
  FlatGradients grads_;
};

// Times `act` and reports each call as moving bytes_per_parameter times the
// number of parameters.
template <class Act>
void measure(benchmark::State& state, std::int64_t bytes_per_parameter, const Act& act) {
  act();
  reset_memory_peaks();
  const std::int64_t held_bytes = read_memory().total_live_bytes;
  act();
  const auto allocated_bytes = static_cast<double>(read_memory().peak_bytes - held_bytes);
  for (auto _ : state) act();
  const auto bytes = static_cast<double>(bytes_per_parameter * state.range(0));
  state.counters["allocated"] = allocated_bytes;
  state.counters["bytes"] =
      benchmark::Counter(bytes, benchmark::Counter::kIsIterationInvariantRate);
}

void copy(benchmark::State& state) {
  Subject subject(state.range(0));
  float* target = subject.flat().params().data_ptr<float>();
  const float* source = subject.grads().flat().const_data_ptr<float>();
  const auto num_bytes = static_cast<std::size_t>(state.range(0)) * sizeof(float);
  measure(state, 8, [&] {
    std::memcpy(target, source, num_bytes);
    benchmark::ClobberMemory();
  });
}

void optimizer_step(benchmark::State& state, OptimizerKind kind, std::int64_t bytes_per_parameter) {
  Subject subject(state.range(0));
  Optimizer optimizer(subject.flat(), subject.grads(), {.kind = kind});
  measure(state, bytes_per_parameter, [&] { optimizer.step(1e-6); });
}
void adamw(benchmark::State& state) {
  optimizer_step(state, OptimizerKind::kAdamW, 28);
}
void sgd(benchmark::State& state) {
  optimizer_step(state, OptimizerKind::kSgd, 12);
}

void norm(benchmark::State& state) {
  Subject subject(state.range(0));
  measure(state, 4, [&] { benchmark::DoNotOptimize(parameter_norm(subject.flat())); });
}

void clip(benchmark::State& state) {
  Subject subject(state.range(0));
  double limit = gradient_norm(subject.grads());
  measure(state, 12, [&] {  // the second half is a pass of Optimizer::step()
    subject.grads().flat().mul_(Clipping(gradient_norm(subject.grads()), limit *= 0.999).factor);
  });
}

void zero_grad(benchmark::State& state) {
  Subject subject(state.range(0));
  measure(state, 4, [&] { subject.grads().zero(); });
}

// 1 M (fits into the caches), 10 M (the model of speed_vs_python.py), 128 M (the
// smallest GPT-2).
void sizes(benchmark::internal::Benchmark* benchmark) {
  benchmark->ArgName("parameters")->Unit(benchmark::kMillisecond);
  for (const std::int64_t millions : {1, 10, 128}) benchmark->Arg(millions << 20);
}
BENCHMARK(copy)->Apply(sizes);
BENCHMARK(adamw)->Apply(sizes);
BENCHMARK(sgd)->Apply(sizes);
BENCHMARK(norm)->Apply(sizes);
BENCHMARK(clip)->Apply(sizes);
BENCHMARK(zero_grad)->Apply(sizes);

}  // namespace
}  // namespace ladder

int main(int argc, char** argv) {
  ladder::become_training_process();
  return ladder::run_benchmarks(argc, argv);
}
