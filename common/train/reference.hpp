// A run that is kept so that others can be compared with it: --save-reference DIR.
//
//   DIR/report.json          a copy of the run's own
//   DIR/model.safetensors    its final parameters
//
// ./ladder compare RUN DIR says whether another run equals it, and if not, where they first differ.
//
// Only a run that has taken its last step is kept. If a signal stopped it, resume it with the same
// command, and it is kept when it ends. The report of a resumed run covers only the steps since
// then, so only these are compared.
#pragma once

#include <filesystem>
#include <optional>
#include <string>

#include "common/train/checkpoint/disk.hpp"
#include "common/train/options/options.hpp"
#include "common/train/report/report.hpp"

namespace ladder {

// Makes sure before training that the reference can be written, by making a hidden folder next to
// DIR; DIR itself appears once it is complete. Does nothing without the option, or on ranks other
// than 0. Local.
class ReferenceFolder {
 public:
  // Throws UsageError, with nothing written, if DIR already exists (nothing is overwritten), or if
  // one of DIR and --out is inside the other; CheckError if it cannot be created.
  ReferenceFolder(const TrainOptions& options, bool is_main);

  // Copies report and parameters of the run in `out`. Returns a line that says so, or why the run
  // is not kept. Throws CheckError for a run that has taken no step.
  std::string keep(const std::filesystem::path& out, const TrainReport& report);

 private:
  std::optional<PartialFolder> folder_;  // none: there is nothing to keep
};

}  // namespace ladder
