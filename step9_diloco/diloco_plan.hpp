// When a DiLoCo worker communicates, and about what: pure functions of the number of inner steps.
//
// Workers train alone for a round of S inner steps. Then they average one fragment of the model and
// take an outer step on it. The fragments take turns, so that each of n is averaged once every
// sync_every = n · S inner steps:
//
//   inner steps     |······ S ······|······ S ······|······ S ······|
//   in flight            [ fragment 0 ]  [ fragment 1 ]  [ fragment 0 ]      n = 2
//                        ^ starts     ^ finishes: delay inner steps later, at the round's end
//
// One fragment is in flight at a time. With no delay both happen after the round's last inner step.
//
// Sources: Douillard et al. 2023 (2311.08105); streaming: Douillard et al. 2025 (2501.18512).
#pragma once

#include <cstdint>

#include "step9_diloco/diloco_options.hpp"

namespace ladder {

// What is due after an inner step.
struct DilocoAction {
  bool starts = false;    // an average of the round's fragment
  bool finishes = false;  // that average, with an outer step: the round is over

  bool operator==(const DilocoAction&) const = default;
};

// What is due after inner step `inner_step`, counted from 1.
inline DilocoAction plan_diloco(const DilocoOptions& options, std::int64_t inner_step) {
  const std::int64_t length = steps_per_round(options);
  const std::int64_t in_round = (inner_step - 1) % length + 1;  // 1 to S
  return {.starts = in_round == length - options.sync_delay, .finishes = in_round == length};
}

// The fragment of a round: outer steps that were taken so far alone decide, so a round that failed
// is followed by one with the same fragment.
inline std::int64_t fragment_of_round(const DilocoOptions& options, std::int64_t outer_steps) {
  return outer_steps % options.num_fragments;
}

}  // namespace ladder
