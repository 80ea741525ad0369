// What DiLoCo's workers wait for on a slow link: without a delay, with fragments, with both.
//
//   ./ladder bench rounds                          measured next to the formula
//   ./ladder bench rounds --timeline rounds.svg    also draws the measured timelines
//
// rounds_measurement.hpp tells what is real here and what is not. The workers are threads.
#include <CLI/CLI.hpp>
#include <cstdio>
#include <fstream>
#include <string>

#include "benchmarks/rounds_measurement.hpp"
#include "common/core/check.hpp"

namespace ladder {
namespace {

struct RoundsOptions {
  int num_workers = 4;
  std::string link = "100:0.1";
  double step_ms = 50;
  std::int64_t num_steps = 40;
  std::string timeline;
};

void run(const RoundsOptions& options) {
  check_usage(options.num_workers >= 1, "--workers is ", options.num_workers,
              ", it must be at least 1");
  check_usage(options.step_ms > 0, "--step-ms is ", options.step_ms, ", it must be positive");
  check_usage(options.num_steps >= 20 && options.num_steps % 20 == 0, "--steps is ",
              options.num_steps, ", it must be a multiple of 20");
  const std::vector<std::pair<std::string, DilocoOptions>> variants = {
      {"one fragment", {.sync_every = 20}},
      {"four fragments", {.sync_every = 20, .num_fragments = 4}},
      {"four fragments, delay 1", {.sync_every = 20, .num_fragments = 4, .sync_delay = 1}},
      {"four fragments, delay 3", {.sync_every = 20, .num_fragments = 4, .sync_delay = 3}},
  };
  std::printf(
      "%d workers, link %s (us : Gbit/s), an inner step takes %g ms\n%-26s %12s %12s %12s\n",
      options.num_workers, options.link.c_str(), options.step_ms, "", "seconds", "by formula",
      "waiting");
  std::vector<std::pair<std::string, RoundsTimeline>> strips;
  for (const auto& [name, diloco] : variants) {
    const PacedRounds rounds = {.diloco = diloco,
                                .num_workers = options.num_workers,
                                .link = parse_link(options.link),
                                .step_s = 1e-3 * options.step_ms,
                                .num_steps = options.num_steps};
    strips.emplace_back(name, measure(rounds));
    const RoundsTimeline& timeline = strips.back().second;
    std::printf("%-26s %12.3f %12.3f %10.1f %%\n", name.c_str(), timeline.total_s,
                rounds.predicted_s(), 100 * timeline.waited_s() / timeline.total_s);
    std::fflush(stdout);
  }
  if (options.timeline.empty()) return;
  std::ofstream out(options.timeline);
  out << draw_svg(strips, concat(options.num_workers, " workers of DiLoCo on a link of ",
                                 options.link, " (us : Gbit/s): measured, computing paced"));
  out.close();
  check(!out.fail(), "--timeline: cannot write ", options.timeline);
  std::printf("wrote %s\n", options.timeline.c_str());
}

}  // namespace
}  // namespace ladder

int main(int argc, char** argv) {
  CLI::App app(
      "Runs the rounds of step 9 with workers that are threads and inner steps that only sleep, "
      "over a "
      "simulated link, and compares the time with the formula: an average is waited for as long as "
      "its transfer takes beyond the delay.");
  ladder::RoundsOptions options;
  const auto add = [&app](const char* name, auto& value, const char* text) {
    app.add_option(name, value, text)->capture_default_str();
  };
  add("--workers", options.num_workers, "number of workers");
  add("--link", options.link, "LATENCY_US:GBPS");
  add("--step-ms", options.step_ms, "how long an inner step sleeps");
  add("--steps", options.num_steps, "inner steps of each run");
  add("--timeline", options.timeline, "draw the measured timelines here, as SVG");
  CLI11_PARSE(app, argc, argv);
  try {
    ladder::run(options);
  } catch (const ladder::UsageError& error) {
    std::fprintf(stderr, "error: %s\n", error.what());
    return 2;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "error: %s\n", error.what());
    return 1;
  }
}
