// Tokens per second of every step of the course, in one program, on the same ranks.
//
//   mpirun -n 2 --bind-to none build/release/benchmarks/throughput_benchmark
//
// Each step trains as its own trainer would, on the built-in corpus, but writes nothing. An
// iteration is a run of kSteps optimizer steps after kWarmup; its time is that of the slowest rank.
#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>
#include <benchmark/benchmark.h>

#include <algorithm>
#include <numeric>
#include <string>
#include <vector>

#include "benchmarks/training_process.hpp"
#include "common/train/start.hpp"
#include "step0_single_gpu/train.hpp"
#include "step1_ddp_reference/train.hpp"
#include "step2_sharded_data/train.hpp"
#include "step3_naive_dp/train.hpp"
#include "step4_bucketed_ddp/bucket_options.hpp"
#include "step4_bucketed_ddp/train.hpp"
#include "step5_zero1/train.hpp"
#include "step6_zero2/train.hpp"
#include "step7_zero3/train.hpp"

namespace ladder {
namespace {

constexpr std::int64_t kWarmup = 3;
constexpr std::int64_t kSteps = 10;
constexpr std::int64_t kRows = 2;  // per rank and step

std::vector<Trainer> trainers_on(int num_ranks) {
  if (num_ranks == 1) return {step0::trainer(), step4::trainer(), step7::trainer()};
  return {step1::trainer(), step2::trainer(), step3::trainer(), step4::trainer(),
          step5::trainer(), step6::trainer(), step7::trainer()};
}

TrainOptions options_of(const Trainer& trainer) {
  TrainOptions options;
  options.step = trainer.step;
  options.num_steps = kWarmup + kSteps;
  options.model = {.context = 256, .layers = 6, .heads = 6, .channels = 384};
  options.data.microbatch_size = kRows;
  options.set<BucketOptions>().capacity_mb = 1;
  options.output.is_quiet = true;
  finalize(options);
  return options;
}

double slowest(double seconds, Communicator& comm) {
  const at::Tensor all = at::zeros({comm.size()}, at::kDouble);
  comm.all_gather(at::full({1}, seconds, at::kDouble), all)->wait();
  return all.max().item<double>();
}

void measure(benchmark::State& state, const Trainer& trainer, World& world) {
  const TrainOptions options = options_of(trainer);
  double tokens = 0, total_s = 0;
  for (auto _ : state) {
    const TrainReport report = trainer.train(options, world);
    const double own_s =
        std::accumulate(report.step_seconds.begin() + kWarmup, report.step_seconds.end(), 0.0);
    const double run_s = slowest(own_s, world.comm());
    state.SetIterationTime(run_s);
    tokens += static_cast<double>(std::accumulate(report.denominators.begin() + kWarmup,
                                                  report.denominators.end(), std::int64_t{0}));
    total_s += run_s;
  }
  state.counters["tokens_per_second"] = tokens / total_s;
}

void add_all(World& world) {
  const int num_ranks = world.comm().size();
  for (const Trainer& trainer : trainers_on(num_ranks)) {
    benchmark::RegisterBenchmark(
        (trainer.step + "/ranks:" + std::to_string(num_ranks)).c_str(),
        [trainer, &world](benchmark::State& state) { measure(state, trainer, world); })
        ->Iterations(2)
        ->UseManualTime()
        ->Unit(benchmark::kMillisecond);
  }
}

}  // namespace
}  // namespace ladder

int main(int argc, char** argv) {
  return ladder::run_benchmarks_on_ranks(argc, argv, ladder::Transport::kAuto, ladder::add_all);
}
