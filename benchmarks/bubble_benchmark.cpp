// The bubble of every pipeline schedule, measured on paced computing, next to its formula.
//
//   mpirun -n 4 --oversubscribe --bind-to none build/release/benchmarks/bubble_benchmark
//   … --schedule 1f1b --microbatches 8 --timeline 1f1b.json     keeps one run as it was measured
//
// bubble_measurement.hpp tells what is real here and what is not. One rank is one stage.
#include <CLI/CLI.hpp>
#include <cstdio>
#include <numeric>
#include <string>
#include <vector>

#include "benchmarks/bubble_measurement.hpp"
#include "benchmarks/training_process.hpp"
#include "common/comm/world.hpp"
#include "common/core/check.hpp"
#include "common/train/checkpoint/disk.hpp"
#include "common/train/run_main.hpp"
#include "step8_pipeline_ga/schedule/schedule_drawing.hpp"

namespace ladder {
namespace {

constexpr Schedule kSchedules[] = {Schedule::kGpipe, Schedule::k1f1b, Schedule::kInterleaved,
                                   Schedule::kZeroBubble};

struct BubbleOptions {
  std::string schedule = "all";
  std::vector<std::int64_t> microbatches = std::vector<std::int64_t>(16);
  int chunks_per_stage = 2;
  double forward_ms = 20;
  double backward_ms = 40;
  std::int64_t message_kib = 1;
  int num_rounds = 3;
  std::string timeline;

  BubbleOptions() { std::iota(microbatches.begin(), microbatches.end(), 1); }
};

void add_bubble_options(CLI::App& app, BubbleOptions& options) {
  app.add_option("--schedule", options.schedule, "the schedule to run, or all of them")
      ->check(CLI::IsMember({"all", "gpipe", "1f1b", "interleaved", "zero-bubble"}));
  app.add_option(
      "--timeline", options.timeline,
      "draw the measured timeline of a single schedule and a single number of microbatches, "
      "and write it here for ./ladder trace FILE --svg OUT");
  const CLI::Range at_least_1(1, 1 << 30), milliseconds(1e-3, 1e6);
  app.add_option("--microbatches", options.microbatches,
                 "numbers of microbatches, separated by spaces")
      ->check(at_least_1);
  app.add_option("--chunks-per-stage", options.chunks_per_stage, "of the interleaved schedule")
      ->check(CLI::Range(2, 1 << 30));
  app.add_option("--forward-ms", options.forward_ms,
                 "how long a stage sleeps for a microbatch's forward")
      ->check(milliseconds);
  app.add_option("--backward-ms", options.backward_ms, "how long it sleeps for the backward")
      ->check(milliseconds);
  app.add_option("--message-kib", options.message_kib,
                 "size of an activation; 384 is that of a row of 256 tokens and 384 channels in "
                 "fp32")
      ->check(at_least_1);
  app.add_option("--rounds", options.num_rounds,
                 "measurements of each row, of which the median is printed")
      ->check(at_least_1);
}

std::string text_of(const std::vector<std::int64_t>& numbers) {
  std::string text;
  for (const std::int64_t number : numbers) text += concat(text.empty() ? "" : " ", number);
  return text;
}

PacedPipeline pipeline_of(const BubbleOptions& options, Schedule schedule,
                          std::int64_t num_microbatches) {
  return {.schedule = schedule,
          .chunks_per_stage = schedule == Schedule::kInterleaved ? options.chunks_per_stage : 1,
          .num_microbatches = num_microbatches,
          .message_numel = options.message_kib * 1024 / 4,
          .forward_s = 1e-3 * options.forward_ms,
          .backward_s = 1e-3 * options.backward_ms};
}

void print_head(const BubbleOptions& options, int num_stages) {
  std::printf("%s\n",
              concat(num_stages, " stages; a forward sleeps ", options.forward_ms,
                     " ms, a backward ", options.backward_ms, " ms; messages of ",
                     options.message_kib, " KiB; medians of ", options.num_rounds,
                     " rounds\nBubbles in percent, each as measured and by the formula. Live: "
                     "microbatches that the stages remember at most")
                  .c_str());
  std::printf("%-12s %3s  %9s %9s %6s  %15s  %15s  live\n", "schedule", "m", "measured", "formula",
              "ratio", "bubble / ideal", "bubble / total");
}

void print_row(const PacedPipeline& pipeline, const TimelineSummary& measured, int num_stages) {
  const TimelineSummary predicted = pipeline.predicted(num_stages);
  const double formula_s = pipeline.predicted_s(num_stages);
  std::printf("%-12s %3lld  %6.1f ms %6.1f ms %6.3f  %6.1f  %6.1f   %6.1f  %6.1f   %s\n",
              to_string(pipeline.schedule), static_cast<long long>(pipeline.num_microbatches),
              1e3 * measured.total_s, 1e3 * formula_s, measured.total_s / formula_s,
              1e2 * measured.bubble_per_ideal, 1e2 * predicted.bubble_per_ideal,
              1e2 * measured.bubble_per_total, 1e2 * predicted.bubble_per_total,
              text_of(measured.live).c_str());
  std::fflush(stdout);
  for (std::size_t stage = 0; stage < measured.live.size(); ++stage) {
    const std::int64_t formula =
        most_live_microbatches(pipeline.schedule, num_stages, pipeline.num_microbatches,
                               pipeline.chunks_per_stage, static_cast<int>(stage));
    check(measured.live[stage] == formula, to_string(pipeline.schedule), ": stage ", stage,
          " remembered ", measured.live[stage], " microbatches, not ", formula);
  }
}

const char* name_of(Schedule schedule) {
  constexpr const char* kNames[] = {"GPipe", "1F1B", "Interleaved 1F1B", "Zero bubble"};
  return kNames[static_cast<int>(schedule)];
}

void draw(const PacedPipeline& pipeline, const Timeline& timeline, const std::string& file) {
  const std::string title =
      concat(name_of(pipeline.schedule), " on ", timeline.size(), " stages, ",
             pipeline.num_microbatches, " microbatches: measured over MPI, computing paced");
  write_text_file(file, trace_of(timeline, title));
  std::printf("%swrote %s\n", draw_text(timeline).c_str(), file.c_str());
}

int run(const BubbleOptions& options, Communicator& comm) {
  check_usage(comm.size() > 1,
              "one stage waits for nobody; start this program under mpirun -n 4 or "
              "./ladder bench bubble --ranks 4");
  check_usage(
      options.timeline.empty() || (options.schedule != "all" && options.microbatches.size() == 1),
      "--timeline draws one run: name its --schedule and one number of --microbatches");
  if (comm.rank() == 0) print_head(options, comm.size());
  for (const Schedule schedule : kSchedules) {
    if (options.schedule != "all" && options.schedule != to_string(schedule)) continue;
    for (const std::int64_t num_microbatches : options.microbatches) {
      const PacedPipeline pipeline = pipeline_of(options, schedule, num_microbatches);
      const Timeline timeline = measure_rounds(pipeline, comm, options.num_rounds);
      if (comm.rank() > 0) continue;
      print_row(pipeline, summarize(timeline), comm.size());
      if (!options.timeline.empty()) draw(pipeline, timeline, options.timeline);
    }
  }
  return 0;
}

}  // namespace
}  // namespace ladder

int main(int argc, char** argv) {
  CLI::App app(
      "Runs the pipeline of step 8 over MPI, one stage per rank, with forwards and backwards that "
      "only sleep, and compares the time and the bubble with the formula. A bubble is the time "
      "that stages wait for one another: (p-1)/m of the computing in GPipe and 1F1B, less in the "
      "other schedules.");
  app.option_defaults()->always_capture_default();
  ladder::BubbleOptions options;
  ladder::add_bubble_options(app, options);
  return ladder::run_table(app, argc, argv, [&] {
    ladder::World world(ladder::Transport::kMpi);
    return ladder::run_in_world(world, [&] { return ladder::run(options, world.comm()); });
  });
}
