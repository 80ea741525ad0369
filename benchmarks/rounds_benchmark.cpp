// What DiLoCo's workers wait for: without a delay, with fragments, with both, and if nobody polls.
//
//   ./ladder bench rounds                          on a simulated link, next to the formula
//   ./ladder bench rounds --timeline rounds.svg    also draws the measured timelines
//   ./ladder bench rounds --ranks 2 --parameters 16777216    over MPI, as fast as it is
//
// rounds_measurement.hpp tells what is real here and what is not.
#include <CLI/CLI.hpp>
#include <cstdio>
#include <fstream>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "benchmarks/rounds_measurement.hpp"
#include "benchmarks/training_process.hpp"
#include "common/comm/launcher_environment.hpp"
#include "common/comm/world.hpp"
#include "common/core/check.hpp"
#include "common/train/run_main.hpp"

namespace ladder {
namespace {

struct RoundsOptions {
  int num_workers = 4;
  std::string link = "100:0.1";
  double step_ms = 50;
  std::int64_t num_steps = 40;
  std::int64_t num_parameters = 842752;
  int polls_per_step = 20;
  std::string timeline;
};

struct Variant {
  std::string name;
  DilocoOptions diloco;
  bool must_be_polled = false;
  bool is_polled = true;
};

using Measure = std::function<RoundsTimeline(const PacedRounds&)>;

void check_rounds(const RoundsOptions& options) {
  check_usage(options.num_workers >= 1, "--workers is ", options.num_workers,
              ", it must be at least 1");
  check_usage(options.step_ms > 0, "--step-ms is ", options.step_ms, ", it must be positive");
  check_usage(options.num_steps >= 20 && options.num_steps % 20 == 0, "--steps is ",
              options.num_steps, ", it must be a multiple of 20");
  check_usage(options.num_parameters >= 16, "--parameters is ", options.num_parameters,
              ", it must be at least 16: the model has as many tensors");
  check_usage(options.polls_per_step >= 1, "--polls is ", options.polls_per_step,
              ", it must be at least 1; the rows that are never polled are measured anyway");
}

// MPI has to be polled, the plain simulated link has not.
std::vector<Variant> variants(bool is_mpi) {
  const DilocoOptions delay_1 = {.sync_every = 20, .num_fragments = 4, .sync_delay = 1};
  const DilocoOptions delay_3 = {.sync_every = 20, .num_fragments = 4, .sync_delay = 3};
  std::vector<Variant> list = {{"one fragment", {.sync_every = 20}},
                               {"four fragments", {.sync_every = 20, .num_fragments = 4}},
                               {"four fragments, delay 1", delay_1},
                               {"four fragments, delay 3", delay_3}};
  if (is_mpi) {
    list.insert(list.begin() + 1, {"one fragment, delay 1", {.sync_every = 20, .sync_delay = 1}});
  } else {
    list.push_back({"delay 3, polled link", delay_3, true});
  }
  list.push_back({"delay 3, never polled", delay_3, true, false});
  return list;
}

PacedRounds rounds_of(const RoundsOptions& options, const Variant& variant) {
  return {.diloco = variant.diloco,
          .num_workers = options.num_workers,
          .numel = options.num_parameters,
          .link = parse_link(options.link),
          .must_be_polled = variant.must_be_polled,
          .step_s = 1e-3 * options.step_ms,
          .polls_per_step = variant.is_polled ? options.polls_per_step : 0,
          .num_steps = options.num_steps};
}

void print_head(const RoundsOptions& options, bool is_mpi) {
  const std::string where = is_mpi ? "over MPI" : concat("link ", options.link, " (us : Gbit/s)");
  std::printf("%d workers, %s, %lld parameters, an inner step takes %g ms and polls %d times\n",
              options.num_workers, where.c_str(), static_cast<long long>(options.num_parameters),
              options.step_ms, options.polls_per_step);
  std::printf("%-26s %10s %12s %10s %16s %10s\n", "", "seconds", is_mpi ? "" : "by formula",
              "waiting", "of it a round", "hidden");
}

// Hidden: the share of the wait without a delay.
void print_row(const std::string& name, const std::string& formula, const RoundsTimeline& timeline,
               double wait_without_delay_s) {
  std::printf("%-26s %10.3f %12s %9.1f%% %13.2f ms %9.0f%%\n", name.c_str(), timeline.total_s,
              formula.c_str(), 100 * timeline.waited_s() / timeline.total_s,
              1e3 * timeline.median_wait_s(),
              100 * (1 - timeline.median_wait_s() / wait_without_delay_s));
  std::fflush(stdout);
}

void write_timeline(const RoundsOptions& options,
                    const std::vector<std::pair<std::string, RoundsTimeline>>& strips) {
  std::ofstream out(options.timeline);
  out << draw_svg(strips, concat(options.num_workers, " workers of DiLoCo on a link of ",
                                 options.link, " (us : Gbit/s): measured, computing paced"));
  out.close();
  check(!out.fail(), "--timeline: cannot write ", options.timeline);
  std::printf("wrote %s\n", options.timeline.c_str());
}

void run(const RoundsOptions& options, bool is_mpi, bool is_quiet, const Measure& measure_rounds) {
  if (!is_quiet) print_head(options, is_mpi);
  std::vector<std::pair<std::string, RoundsTimeline>> strips;
  std::map<std::int64_t, double> wait_without_delay_s;  // by the number of fragments
  for (const Variant& variant : variants(is_mpi)) {
    const PacedRounds rounds = rounds_of(options, variant);
    const RoundsTimeline timeline = measure_rounds(rounds);
    if (!variant.must_be_polled) strips.emplace_back(variant.name, timeline);
    const double wait_s =
        wait_without_delay_s.try_emplace(variant.diloco.num_fragments, timeline.median_wait_s())
            .first->second;
    char formula[16] = "";
    if (!is_mpi) std::snprintf(formula, sizeof formula, "%.3f", rounds.predicted_s());
    if (!is_quiet) print_row(variant.name, formula, timeline, wait_s);
  }
  if (!options.timeline.empty() && !is_quiet) write_timeline(options, strips);
}

int run_on_ranks(RoundsOptions options) {
  World world(Transport::kAuto);
  return run_in_world(world, [&] {
    options.num_workers = world.comm().size();
    run(options, /*is_mpi=*/true, /*is_quiet=*/world.comm().rank() > 0,
        [&](const PacedRounds& rounds) { return measure_on(world.comm(), rounds); });
    return 0;
  });
}

}  // namespace
}  // namespace ladder

int main(int argc, char** argv) {
  CLI::App app(
      "Runs the rounds of step 9 with inner steps that only sleep. Workers are threads on a "
      "simulated link, and the time is compared with the formula: an average is waited for as long "
      "as its transfer takes beyond the delay. Or they are ranks under mpirun, over MPI itself.");
  ladder::RoundsOptions options;
  const auto add = [&app](const char* name, auto& value, const char* text) {
    return app.add_option(name, value, text)->capture_default_str();
  };
  add("--workers", options.num_workers,
      "number of threads; under mpirun, the workers are its ranks");
  add("--link", options.link, "LATENCY_US:GBPS, of the threads");
  add("--step-ms", options.step_ms, "how long an inner step sleeps");
  add("--steps", options.num_steps, "inner steps of each run");
  add("--parameters", options.num_parameters, "of the model, in 16 equal tensors");
  add("--polls", options.polls_per_step, "polls in each inner step, in regular intervals");
  add("--timeline", options.timeline, "draw the measured timelines here, as SVG");
  CLI11_PARSE(app, argc, argv);
  return ladder::run_table([&] {
    ladder::check_rounds(options);
    if (ladder::launched_ranks() > 1) return ladder::run_on_ranks(options);
    ladder::run(options, /*is_mpi=*/false, /*is_quiet=*/false, ladder::measure);
    return 0;
  });
}
