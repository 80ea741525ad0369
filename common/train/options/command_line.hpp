// The command line of a trainer, and its --config file.
#pragma once

#include <optional>
#include <string>

#include "common/train/trainer.hpp"

namespace ladder {

// What the command line asks for besides training.
struct CommandLine {
  TrainOptions options;
  bool should_exit = false;  // --help, --print-config: print `text` and exit
  std::string text;
  int dry_run_ranks = 0;  // --dry-run: for how many ranks; 0: train
  bool is_json = false;   // --json: what --dry-run shows, as data
  // The step's picture (Trainer): the SVG file to write, empty for text on the terminal.
  std::optional<std::string> picture_file;
};

// Reads and validates the command line and the file of --config; the command line takes precedence.
// Throws UsageError naming the option, its value and the way out; for an unknown option, also the
// most similar one that exists.
CommandLine parse_command_line(int argc, const char* const* argv, const Trainer& trainer);

}  // namespace ladder
