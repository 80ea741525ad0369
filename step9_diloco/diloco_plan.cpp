#include "step9_diloco/diloco_plan.hpp"

namespace ladder {

DilocoAction plan_diloco(const DilocoOptions& options, std::int64_t inner_step) {
  const std::int64_t length = steps_per_round(options);
  const std::int64_t in_round = (inner_step - 1) % length + 1;  // 1 to S
  return {.starts = in_round == length - options.sync_delay, .finishes = in_round == length};
}

std::int64_t fragment_of_round(const DilocoOptions& options, std::int64_t outer_steps) {
  return outer_steps % options.num_fragments;
}

}  // namespace ladder
