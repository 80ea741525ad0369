#include "common/train/options/step_options.hpp"

#include <algorithm>
#include <utility>

#include "common/train/options/options.hpp"

namespace ladder {

void StepOptions::keep_only(const StepOptions& wanted) {
  StepOptions kept = wanted;
  for (Struct& each : kept.structs_) {
    const auto own = std::find_if(structs_.begin(), structs_.end(), [&](const Struct& mine) {
      return mine.values.type() == each.values.type();
    });
    if (own != structs_.end()) each = *own;
  }
  *this = std::move(kept);
}

void StepOptions::declare(OptionTable& table) {
  for (Struct& each : structs_) each.declare(each.values, table);
}

void StepOptions::finalize(TrainOptions& options) {
  for (Struct& each : structs_) each.finalize(each.values, options);
}

}  // namespace ladder
