// A run kept aside, for other runs to be compared with: --save-reference DIR.
//
//   DIR/report.json          as the run's own
//   DIR/model.safetensors    its final parameters
//
// ./ladder compare RUN DIR says whether another run equals it, and if not where they part.
#pragma once

#include "common/train/options.hpp"

namespace ladder {

// Throws UsageError if the folder that --save-reference names is there already: nothing is
// overwritten. Local; does nothing without the option.
void check_reference_folder(const TrainOptions& options);

// Copies report and parameters of the finished run in --out. The folder appears when both are in it.
// Local; does nothing without the option.
void save_reference(const TrainOptions& options);

}  // namespace ladder
