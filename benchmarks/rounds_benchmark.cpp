// What DiLoCo's workers wait for: without a delay, with fragments, with both, and if nobody polls.
//
//   ./ladder bench rounds                          on a simulated link, next to the formula
//   ./ladder bench rounds --timeline rounds.svg    also draws the measured timelines
//   ./ladder bench rounds --ranks 2 --parameters 16777216    over MPI, as fast as it is
//
// rounds_measurement.hpp tells what is real here and what is not.
#include <CLI/CLI.hpp>
#include <cstdio>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "benchmarks/rounds_measurement.hpp"
#include "benchmarks/training_process.hpp"
#include "common/comm/launcher_environment.hpp"
#include "common/comm/world.hpp"
#include "common/core/check.hpp"
#include "common/train/checkpoint/disk.hpp"
#include "common/train/run_main.hpp"

namespace ladder {
namespace {

struct RoundsOptions {
  PacedRounds rounds;  // but for what the variants say, and for these two
  std::string link = "100:0.1";
  double step_ms = 50;
  std::string timeline;
};

void add_rounds_options(CLI::App& app, RoundsOptions& options) {
  PacedRounds& rounds = options.rounds;
  const CLI::Range at_least_1(1, 1 << 30);
  app.add_option("--workers", rounds.num_workers,
                 "number of threads; under mpirun, the workers are its ranks")
      ->check(at_least_1);
  app.add_option("--link", options.link, "LATENCY_US:GBPS, of the threads");
  app.add_option("--step-ms", options.step_ms, "how long an inner step sleeps")
      ->check(CLI::Range(1e-3, 1e6));
  app.add_option("--steps", rounds.num_steps, "inner steps of each run, a multiple of 20")
      ->check(at_least_1);
  app.add_option("--parameters", rounds.numel, "of the model, in 16 equal tensors")
      ->check(CLI::Range(16, 1 << 30));
  app.add_option("--polls", rounds.polls_per_step,
                 "polls in each inner step, in regular intervals; the rows that are never polled "
                 "are measured anyway")
      ->check(at_least_1);
  app.add_option("--timeline", options.timeline, "draw the measured timelines here, as SVG");
}

struct Variant {
  std::string name;
  DilocoOptions diloco;
  bool must_be_polled = false;
  bool is_polled = true;
};

using Measure = std::function<RoundsTimeline(const PacedRounds&)>;

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

void print_head(const RoundsOptions& options, bool is_mpi) {
  const std::string where = is_mpi ? "over MPI" : concat("link ", options.link, " (us : Gbit/s)");
  std::printf("%d workers, %s, %lld parameters, an inner step takes %g ms and polls %d times\n",
              options.rounds.num_workers, where.c_str(),
              static_cast<long long>(options.rounds.numel), options.step_ms,
              options.rounds.polls_per_step);
  std::printf("%-26s %10s %12s %10s %16s %10s\n", "", "seconds", is_mpi ? "" : "by formula",
              "waiting", "of it a round", "hidden");
}

// Hidden: the share of the communication time, which is the wait without a delay.
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
  write_text_file(
      options.timeline,
      draw_svg(strips, concat(options.rounds.num_workers, " workers of DiLoCo on a link of ",
                              options.link, " (us : Gbit/s): measured, computing paced")));
  std::printf("wrote %s\n", options.timeline.c_str());
}

int run(const RoundsOptions& options, bool is_mpi, bool is_quiet, const Measure& measure_rounds) {
  if (!is_quiet) print_head(options, is_mpi);
  std::vector<std::pair<std::string, RoundsTimeline>> strips;
  std::map<std::int64_t, double> wait_without_delay_s;  // by the number of fragments
  for (const Variant& variant : variants(is_mpi)) {
    PacedRounds rounds = options.rounds;
    rounds.diloco = variant.diloco;
    rounds.must_be_polled = variant.must_be_polled;
    if (!variant.is_polled) rounds.polls_per_step = 0;
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
  return 0;
}

int run_on_ranks(RoundsOptions& options) {
  World world(Transport::kAuto);
  return run_in_world(world, [&] {
    options.rounds.num_workers = world.comm().size();
    return run(options, /*is_mpi=*/true, /*is_quiet=*/world.comm().rank() > 0,
               [&](const PacedRounds& rounds) { return measure_on(world.comm(), rounds); });
  });
}

}  // namespace
}  // namespace ladder

int main(int argc, char** argv) {
  CLI::App app(
      "Runs the rounds of step 9 with inner steps that only sleep. Workers are threads on a "
      "simulated link, and the time is compared with the formula: an average is waited for as long "
      "as its transfer takes beyond the delay. Or they are ranks under mpirun, over MPI itself.");
  app.option_defaults()->always_capture_default();
  ladder::RoundsOptions options;
  ladder::add_rounds_options(app, options);
  return ladder::run_table(app, argc, argv, [&] {
    ladder::check_usage(options.rounds.num_steps % 20 == 0, "--steps is ", options.rounds.num_steps,
                        ", it must be a multiple of 20");
    options.rounds.link = ladder::parse_link(options.link);
    options.rounds.step_s = 1e-3 * options.step_ms;
    if (ladder::launched_ranks() > 1) return ladder::run_on_ranks(options);
    return ladder::run(options, /*is_mpi=*/false, /*is_quiet=*/false, ladder::measure);
  });
}
