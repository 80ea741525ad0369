// A run kept aside, for other runs to be compared with: --save-reference DIR.
//
//   DIR/report.json          as the run's own
//   DIR/model.safetensors    its final parameters
//
// ./ladder compare RUN DIR says whether another run equals it, and if not where they part.
//
// Only a run that has taken its last step is kept. One that a signal has stopped is not: resumed
// with the same command, it is kept when it ends. A resumed run is kept with the steps that it took
// itself, as its report has them, and is compared on these.
#pragma once

#include <filesystem>
#include <string>

#include "common/train/options.hpp"
#include "common/train/report.hpp"

namespace ladder {

// Finds out before training whether the reference can be written, by making a hidden folder beside
// its place; DIR itself appears when all is in it. Does nothing without the option, and on other
// ranks than 0. Local.
class ReferenceFolder {
 public:
  // Throws UsageError, with nothing written, if DIR is there already (nothing is overwritten), or
  // if it and --out lie one in the other; CheckError if it cannot be made.
  ReferenceFolder(const TrainOptions& options, bool is_main);
  ~ReferenceFolder();  // takes the hidden folder away; a killed process leaves it
  ReferenceFolder(const ReferenceFolder&) = delete;
  ReferenceFolder& operator=(const ReferenceFolder&) = delete;

  // Copies report and parameters of the run in `out`, and returns a line that says so, or why the
  // run is not kept. Throws CheckError for a run that has taken no step.
  std::string keep(const std::filesystem::path& out, const TrainReport& report);

 private:
  std::filesystem::path folder_;   // empty: nothing is to be kept
  std::filesystem::path partial_;  // what we have made, and may delete
};

}  // namespace ladder
