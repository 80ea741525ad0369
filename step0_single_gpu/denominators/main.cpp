// The denominator laboratory: the table of README.md, and its exercise.
#include <CLI/CLI.hpp>
#include <cstdio>
#include <filesystem>
#include <iterator>

#include "common/comm/world.hpp"
#include "common/core/check.hpp"
#include "common/core/process_memory.hpp"
#include "common/train/checkpoint/disk.hpp"
#include "common/train/run_main.hpp"
#include "step0_single_gpu/denominators/effects.hpp"
#include "step0_single_gpu/denominators/puzzle.hpp"

namespace ladder::lab {
namespace {

constexpr const char* kAbout =
    "Trains a small GPT with five mistakes in the denominator of its loss, and prints what each of "
    "them looks like.\n\n"
    "Every run sees the same 8 documents per step, sorted by length, on 2 ranks (played in one "
    "process) with 2 flushes of 2 microbatches each. Documents are padded, so the microbatches "
    "have unequal numbers of targets. The mistakes:\n"
    "  mean-of-means     each microbatch is divided by its own number of targets\n"
    "  scaled-again      the accumulated gradient is divided again after each flush\n"
    "  validation-means  the validation loss is a mean of means; training is right\n"
    "  local-weights     each rank divides by its own number of targets, the log does not\n"
    "  padding           positions without a target are counted\n\n"
    "The columns:\n"
    "  gradient norm    of the first step, divided by the right one; the same under both "
    "optimizers\n"
    "  clipped          the same after clipping to norm 0.5: what AdamW gets\n"
    "  last loss        as the run reports it in the last step, and how much that is above the "
    "right one\n"
    "  parameters       distance of the final ones from the right ones, divided by how far those "
    "have moved\n"
    "  validation       loss at the end, as the run reports it\n"
    "  true validation  the same model's loss with one denominator\n"
    "The last four are there twice: for plain SGD without clipping, and for AdamW with "
    "clipping.\n\n"
    "step0_single_gpu/denominators/README.md explains all of it.";

struct LabOptions {
  std::int64_t num_steps = 30;
  std::uint64_t seed = 1;
  std::string check, write_reports, grade;
};

// Returns --help's text, or nothing if there is work to do.
std::string parse(int argc, char** argv, LabOptions& options) {
  CLI::App app(kAbout, "denominators");
  const auto add = [&app](const char* name, auto& value, const char* type, const char* text) {
    return app.add_option(name, value, text)->type_name(type);
  };
  add("--steps", options.num_steps, "N", "optimizer steps of each run")->capture_default_str();
  add("--seed", options.seed, "N", "of data and initial weights; of the exercise's puzzle")
      ->capture_default_str();
  auto* const check =
      add("--check", options.check, "FILE.md",
          "compare the table in this file with a new one; exit code 1 if they differ");
  auto* const write = add("--write-reports", options.write_reports, "FOLDER",
                          "write the exercise's five reports here, as run_a.json, …");
  add("--grade", options.grade, "FILE",
      "grade the exercise: five lines such as a: right; exit code 1 if one is wrong")
      ->excludes(check, write);
  write->excludes(check);
  try {
    app.parse(argc, argv);
  } catch (const CLI::CallForHelp&) {
    return app.help();
  } catch (const CLI::ParseError& error) {
    throw UsageError(concat(error.what(), " (--help lists all options)"));
  }
  check_usage(options.num_steps >= 1, "--steps is ", options.num_steps, ", it must be at least 1");
  return {};
}

// Prints the lines and returns the exit code: they are what is wrong.
int report(const std::vector<std::string>& faults, const char* if_none) {
  for (const std::string& fault : faults) std::printf("%s\n", fault.c_str());
  if (faults.empty()) std::printf("%s\n", if_none);
  return faults.empty() ? kExitDone : kExitError;
}

int write_reports(const LabOptions& options) {
  make_folders(options.write_reports);
  const std::vector<Mistake> hidden = hidden_mistakes(options.seed);
  for (std::size_t i = 0; i < hidden.size(); ++i) {
    const auto file =
        std::filesystem::path(options.write_reports) / concat("run_", kRuns[i], ".json");
    write_text_file(file, puzzle_report(kRuns[i], hidden[i], options.seed));
    std::printf("wrote %s\n", file.c_str());
  }
  return kExitDone;
}

int run(int argc, char** argv) {
  LabOptions options;
  const std::string help = parse(argc, argv, options);
  if (!help.empty()) {
    std::printf("%s", help.c_str());
    return kExitDone;
  }
  if (!options.grade.empty()) {
    return report(grade_answers(read_text_file(options.grade), options.seed),
                  "all five answers are right");
  }
  if (!options.write_reports.empty()) return write_reports(options);
  const std::string written = options.check.empty() ? "" : read_text_file(options.check);
  const std::string table = table_of(measure_effects(options.num_steps, options.seed));
  if (options.check.empty()) {
    std::printf("%s", table.c_str());
    return kExitDone;
  }
  return report(compare_tables(written, table), "the table is up to date");
}

}  // namespace
}  // namespace ladder::lab

int main(int argc, char** argv) {
  ladder::keep_freed_memory();
  ladder::World world(ladder::Transport::kSelf);
  return ladder::run_in_world(world, [&] { return ladder::lab::run(argc, argv); });
}
