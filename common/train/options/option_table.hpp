// All options of a trainer: name, member, the values that it may have, help. One table serves the
// parser, --help, --print-config, the report and the checks of single values. options.cpp has the
// checks of several options; diloco_options.cpp and elastic_options.cpp what their classes need when
// they are used alone.
#pragma once

#include "common/train/json.hpp"
#include "common/train/options/options.hpp"

namespace CLI {
class App;
}

namespace ladder {

// Adds the common options and those of options.groups to the parser, bound to the members of
// `options`, which must outlive it. Returns their current values, by name without the dashes.
// Parsing throws UsageError for an invalid value.
Json add_options(CLI::App& parser, TrainOptions& options);

// Throws UsageError naming the first option whose value alone is impossible, whatever the others are.
void check_ranges(TrainOptions options);

}  // namespace ladder
