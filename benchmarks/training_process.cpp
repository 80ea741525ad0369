#include "benchmarks/training_process.hpp"

#include <benchmark/benchmark.h>

#include "common/core/compute_threads.hpp"
#include "common/core/memory_ledger.hpp"
#include "common/core/process_memory.hpp"
#include "common/train/run_main.hpp"

namespace ladder {

void become_training_process() {
  keep_freed_memory();
  install_memory_ledger();
  set_compute_threads(1);
}

namespace {

class NullReporter final : public benchmark::BenchmarkReporter {
 public:
  bool ReportContext(const Context& /*context*/) override { return true; }
  void ReportRuns(const std::vector<Run>& /*runs*/) override {}
};

}  // namespace

int run_benchmarks(int argc, char** argv) {
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 2;
  benchmark::RunSpecifiedBenchmarks();
  benchmark::Shutdown();
  return 0;
}

int run_benchmarks_on_ranks(int argc, char** argv, Transport transport,
                            const std::function<void(World&)>& add) {
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 2;
  become_training_process();
  World world(transport);
  return run_in_world(world, [&] {
    add(world);
    NullReporter silence;
    benchmark::RunSpecifiedBenchmarks(world.comm().rank() == 0 ? nullptr : &silence);
    return 0;
  });
}

int run_table(CLI::App& app, int argc, char** argv, const std::function<int()>& run) {
  return run_command(app, argc, argv, [&] {
    become_training_process();
    return run();
  });
}

}  // namespace ladder
