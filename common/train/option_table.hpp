// All options of a trainer: name, member, help. One table serves the parser, --help, --print-config
// and the report, so none of them can be behind the others.
#pragma once

#include "common/train/json.hpp"
#include "common/train/options.hpp"

namespace CLI {
class App;
}

namespace ladder {

// Adds the options of options.groups to the parser, bound to the members of `options`, which must
// outlive it. Returns the values that they have now, by name without the dashes.
// A value that does not fit throws UsageError.
Json add_options(CLI::App& parser, TrainOptions& options);

}  // namespace ladder
