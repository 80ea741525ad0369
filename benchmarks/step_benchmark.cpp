// Where the time of step 0 goes.
//
// Every benchmark runs whole training steps, in the loop's order, and reports
// the time of one part and its share of the whole; a kernel run alone would find
// its data in the cache. The phases (forward … next_batch) add up to the step.
// The operators (matrix_products …) count in forward and in backward.
#include <ATen/record_function.h>
#include <benchmark/benchmark.h>

#include <map>
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

constexpr const char* kParts[] = {
    "whole_step", "next_batch", "forward",         "backward",  "clip", "optimizer",
    "zero_grad",  "param_norm", "matrix_products", "attention", "gelu", "layer_norm"};

// The current step's seconds; global, because libtorch's callbacks need it.
std::map<std::string_view, double> part_seconds;

const char* part_of(std::string_view op) {
  if (op == "mkldnn::_linear_pointwise" || op == "aten::addmm" || op == "aten::mm")
    return "matrix_products";
  if (op.find("scaled_dot_product") != op.npos) return "attention";
  if (op.find("gelu") != op.npos) return "gelu";
  if (op.find("native_layer_norm") != op.npos) return "layer_norm";
  return nullptr;
}

// Times the operators that part_of() knows, including all that they call.
struct OperatorTimer : at::ObserverContext {
  explicit OperatorTimer(const char* timed) : part(timed) {}
  const char* part;
  Timer timer;
};
bool is_timing_operator = false;

std::unique_ptr<at::ObserverContext> start_operator(const at::RecordFunction& op) {
  const char* const part = is_timing_operator ? nullptr : part_of(op.name());
  if (part == nullptr) return nullptr;
  is_timing_operator = true;
  return std::make_unique<OperatorTimer>(part);
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
    part_seconds.clear();
    const Timer whole;
    std::optional<Microbatches> batch;
    at::Tensor loss;
    time("next_batch", [&] { batch = batches_.next(); });
    time("forward",
         [&] { loss = loss_of(model_, kNextToken)((*batch)[0]) / kNextToken.count(*batch); });
    time("backward", [&] { loss.backward(); });
    time("clip", [&] {  // the second half is the optimizer's first pass
      grads_.flat().mul_(Clipping(gradient_norm(grads_), /*clip_norm=*/1.0).factor);
    });
    time("optimizer", [&] { optimizer_.step(/*learning_rate=*/1e-4); });
    time("zero_grad", [&] { grads_.zero(); });
    time("param_norm", [&] { parameter_norm(flat_); });
    part_seconds["whole_step"] = whole.seconds();
  }

 private:
  static DataOptions data_options(const ModelOptions& model, std::int64_t rows) {
    DataOptions options;
    options.microbatch_size = rows;
    options.context = model.context;
    return options;
  }

  template <class Act>
  static void time(const char* part, const Act& act) {
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

void measure(benchmark::State& state, const char* part, const ModelOptions& options,
             std::int64_t rows) {
  Loop loop(options, rows);
  for (int warmup = 0; warmup < 3; ++warmup) loop.step();
  double sum = 0, whole = 0;
  for (auto _ : state) {
    loop.step();
    state.SetIterationTime(part_seconds[part]);
    sum += part_seconds[part];
    whole += part_seconds["whole_step"];
  }
  state.counters["percent"] = 100 * sum / whole;
}

void register_all(const std::string& model, const ModelOptions& options, std::int64_t rows,
                  std::int64_t num_steps) {
  for (const char* part : kParts) {
    benchmark::RegisterBenchmark(
        (model + "/" + part).c_str(),
        [=](benchmark::State& state) { measure(state, part, options, rows); })
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
