// The command line of a trainer, and its --config file.
#pragma once

#include <optional>
#include <string>

#include "common/train/theory.hpp"

namespace ladder {

// What the command line asks for besides training.
struct CommandLine {
  TrainOptions options;
  bool should_exit = false;  // --help, --print-config: print `text` and exit
  std::string text;          // that of --print-config follows with finalize()
  int dry_run_ranks = 0;     // --dry-run: for how many ranks; 0: train
  bool is_json = false;      // --json: what --dry-run shows, as data
  bool wants_tries = false;  // --tries: with --dry-run, what ./ladder plan tries, as data
  // The step's picture (Theory): the file to write, empty for text on the terminal.
  std::optional<std::string> picture_file;

  // Nothing is trained: it is only asked what the run would be.
  bool is_question() const { return should_exit || picture_file || dry_run_ranks > 0; }
};

// Reads the words of the command line and of the file of --config; the command line takes
// precedence. Opens no other file: finalize() (start.hpp) opens what the words name. Throws
// UsageError naming the option, its value and the way out; for an unknown option, also the most
// similar one that exists.
CommandLine parse_command_line(int argc, const char* const* argv, const Theory& theory);

// finalize() for a command line. What a run would start from must be there, unless it is only asked
// what the run would be. Writes the text of --print-config.
void finalize(CommandLine& line);

// The options as a --config file, without those that follow from others. Such a file has no escapes
// and no "#" but for comments, so a value that would need one is left out.
std::string config_text(const TrainOptions& options);

}  // namespace ladder
