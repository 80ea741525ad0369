// Where the time of step 0 goes.
//
// Every benchmark runs whole training steps, in the loop's order, and reports
// the time of one part and its share of the whole; a kernel run alone would find
// its data in the cache. The phases (forward … next_batch) add up to the step.
// The operators (matrix_products …) count in forward and in backward.
#include <ATen/record_function.h>
#include <benchmark/benchmark.h>

#include <array>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "benchmarks/training_process.hpp"
#include "common/core/timer.hpp"
#include "common/data/batch_stream.hpp"
#include "common/model/build_layers.hpp"
#include "common/optim/flat_model.hpp"
#include "common/optim/norm.hpp"
#include "common/optim/optimizer.hpp"
#include "step0_single_gpu/objective.hpp"

namespace ladder {
namespace {

enum Part {
  kWholeStep,
  kNextBatch,
  kForward,
  kBackward,
  kClip,
  kOptimizer,
  kZeroGrad,
  kParamNorm,
  kMatrixProducts,
  kAttention,
  kGelu,
  kLayerNorm,
  kNumParts
};
constexpr std::array<const char*, kNumParts> kPartNames = {
    "whole_step", "next_batch", "forward",         "backward",  "clip", "optimizer",
    "zero_grad",  "param_norm", "matrix_products", "attention", "gelu", "layer_norm"};

std::array<double, kNumParts> part_seconds;  // of the current step; global, because
                                             // libtorch's callbacks need it

std::optional<Part> part_of(std::string_view op) {
  if (op == "mkldnn::_linear_pointwise" || op == "aten::addmm" || op == "aten::mm")
    return kMatrixProducts;
  if (op.find("scaled_dot_product") != op.npos) return kAttention;
  if (op.find("gelu") != op.npos) return kGelu;
  if (op.find("native_layer_norm") != op.npos) return kLayerNorm;
  return std::nullopt;
}

// Times the operators that part_of() knows, including all that they call.
struct OperatorTimer : at::ObserverContext {
  explicit OperatorTimer(Part timed) : part(timed) {}
  Part part;
  Timer timer;
};
bool is_timing_operator = false;

std::unique_ptr<at::ObserverContext> start_operator(const at::RecordFunction& op) {
  const std::optional<Part> part = is_timing_operator ? std::nullopt : part_of(op.name());
  if (!part) return nullptr;
  is_timing_operator = true;
  return std::make_unique<OperatorTimer>(*part);
}

void end_operator(const at::RecordFunction&, at::ObserverContext* context) {
  if (context == nullptr) return;
  const auto* timed = static_cast<OperatorTimer*>(context);
  part_seconds[timed->part] += timed->timer.seconds();
  is_timing_operator = false;
}

// Step 0's loop, split into its phases.
class Loop {
 public:
  Loop(const ModelOptions& options, std::int64_t rows)
      : model_(build_layers(options, /*seed=*/1)),
        flat_(model_.units()),
        grads_(flat_),
        optimizer_(flat_, grads_, {}),
        batches_(data_options(options, rows), whole_data(Tail::kDrop)) {}

  void step() {
    part_seconds.fill(0);
    const Timer whole;
    std::optional<Microbatches> batch;
    at::Tensor loss;
    time(kNextBatch, [&] { batch = batches_.next(); });
    time(kForward,
         [&] { loss = loss_of(model_, kNextToken)((*batch)[0]) / kNextToken.count(*batch); });
    time(kBackward, [&] { loss.backward(); });
    time(kClip, [&] {  // the second half is the optimizer's first pass
      grads_.flat().mul_(Clipping(gradient_norm(grads_), /*clip_norm=*/1.0).factor);
    });
    time(kOptimizer, [&] { optimizer_.step(/*learning_rate=*/1e-4); });
    time(kZeroGrad, [&] { grads_.zero(); });
    time(kParamNorm, [&] { parameter_norm(flat_); });
    part_seconds[kWholeStep] = whole.seconds();
  }

 private:
  static DataOptions data_options(const ModelOptions& model, std::int64_t rows) {
    DataOptions options;
    options.microbatch_size = rows;
    options.context = model.context;
    return options;
  }

  template <class Act>
  static void time(Part part, const Act& act) {
    const Timer timer;
    act();
    part_seconds[part] = timer.seconds();
  }

  Model model_;
  FlatModel flat_;
  FlatGradients grads_;
  Optimizer optimizer_;
  BatchStream batches_;
};

void measure(benchmark::State& state, Part part, const ModelOptions& options, std::int64_t rows) {
  Loop loop(options, rows);
  for (int warmup = 0; warmup < 3; ++warmup) loop.step();
  double sum = 0, whole = 0;
  for (auto _ : state) {
    loop.step();
    state.SetIterationTime(part_seconds[part]);
    sum += part_seconds[part];
    whole += part_seconds[kWholeStep];
  }
  state.counters["percent"] = 100 * sum / whole;
}

void register_all(const std::string& model, const ModelOptions& options, std::int64_t rows,
                  std::int64_t num_steps) {
  for (int part = 0; part < kNumParts; ++part) {
    benchmark::RegisterBenchmark(
        (model + "/" + kPartNames[static_cast<std::size_t>(part)]).c_str(),
        [=](benchmark::State& state) { measure(state, static_cast<Part>(part), options, rows); })
        ->UseManualTime()
        ->Iterations(num_steps)
        ->Unit(benchmark::kMillisecond);
  }
}

}  // namespace
}  // namespace ladder

int main(int argc, char** argv) {
  ladder::become_training_process();
  at::addGlobalCallback(at::RecordFunctionCallback(ladder::start_operator, ladder::end_operator));
  ladder::register_all("6_layers_384_channels",
                       {.context = 256, .layers = 6, .heads = 6, .channels = 384},
                       /*rows=*/2, /*num_steps=*/20);
  ladder::register_all("4_layers_128_channels", {}, /*rows=*/4,
                       /*num_steps=*/100);
  return ladder::run_benchmarks(argc, argv);
}
