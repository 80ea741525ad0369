#include "benchmarks/training_process.hpp"

#include <ATen/Parallel.h>
#include <benchmark/benchmark.h>
#include <malloc.h>

#include "common/core/memory_ledger.hpp"

namespace ladder {

void become_training_process() {
  mallopt(M_MMAP_THRESHOLD, 1 << 30);
  mallopt(M_TRIM_THRESHOLD, -1);
  mallopt(M_TOP_PAD, 64 << 20);
  install_memory_ledger();
  at::set_num_threads(1);
}

int run_benchmarks(int argc, char** argv) {
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 2;
  benchmark::RunSpecifiedBenchmarks();
  benchmark::Shutdown();
  return 0;
}

}  // namespace ladder
