#include "benchmarks/training_process.hpp"

#include <benchmark/benchmark.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <exception>

#include "common/comm/launcher_environment.hpp"
#include "common/core/check.hpp"
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
  const bool is_first = launched_rank() == 0;
  try {
    app.parse(argc, argv);
    become_training_process();
    return run();
  } catch (const CLI::ParseError& error) {  // or --help
    const int code = is_first ? app.exit(error) : error.get_exit_code();
    return code == 0 ? 0 : kExitUsage;
  } catch (const std::exception& error) {
    if (is_first) std::fprintf(stderr, "error: %s\n", error.what());
    return dynamic_cast<const UsageError*>(&error) != nullptr ? kExitUsage : kExitError;
  }
}

}  // namespace ladder
