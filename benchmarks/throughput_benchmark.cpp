// Tokens per second of steps 0 to 7, in one program, on the same ranks.
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
#include "cmake/trainers.hpp"
#include "common/comm/world.hpp"
#include "common/train/start.hpp"
#include "step4_bucketed_ddp/bucket_options.hpp"

namespace ladder {
namespace {

constexpr std::int64_t kWarmup = 3;
constexpr std::int64_t kSteps = 10;
constexpr std::int64_t kRows = 2;  // per rank and step

// The trainers that train on the same rows, and so in each step on as many tokens: on one rank also
// step 0.
std::vector<Trainer> trainers_on(int num_ranks) {
  std::vector<Trainer> all = trainers();
  std::erase_if(all, [&](const Trainer& trainer) {
    return trainer.role != RankRole::kReplica &&
           !(trainer.role == RankRole::kAlone && num_ranks == 1);
  });
  return all;
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

void measure(benchmark::State& state, const Trainer& trainer, Communicator& comm) {
  const TrainOptions options = options_of(trainer);
  double tokens = 0, total_s = 0;
  for (auto _ : state) {
    const TrainReport report = trainer.train(options, comm);
    const double own_s =
        std::accumulate(report.step_seconds.begin() + kWarmup, report.step_seconds.end(), 0.0);
    const double run_s = slowest(own_s, comm);
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
        [trainer, &world](benchmark::State& state) { measure(state, trainer, world.comm()); })
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
