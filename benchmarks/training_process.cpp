#include "benchmarks/training_process.hpp"

#include <benchmark/benchmark.h>

#include "common/core/compute_threads.hpp"
#include "common/core/memory_ledger.hpp"
#include "common/core/process_memory.hpp"

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

void run_benchmarks_on(int rank) {
  NullReporter silence;
  if (rank == 0) {
    benchmark::RunSpecifiedBenchmarks();
  } else {
    benchmark::RunSpecifiedBenchmarks(&silence);
  }
}

int run_benchmarks(int argc, char** argv) {
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 2;
  benchmark::RunSpecifiedBenchmarks();
  benchmark::Shutdown();
  return 0;
}

}  // namespace ladder
