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

namespace ladder {

struct DilocoOptions {
  std::int64_t sync_every = 20;    // inner steps between two averages of the same fragment
  std::int64_t num_fragments = 1;  // n
  std::int64_t sync_delay = 0;     // inner steps between the start of an average and its end
  double alpha = 0;                // share of the local parameters that survives an outer step
  double outer_lr = 0.7;
  double outer_momentum = 0.9;  // Nesterov's
};

// Throws UsageError naming option and value: more fragments than inner steps, inner steps that the
// fragments do not divide, no fragments, a delay that is negative or not shorter than a round, an
// alpha outside [0, 1], a negative learning rate or momentum, a momentum of 1 or more.
void check_diloco(const DilocoOptions& options);

std::int64_t steps_per_round(const DilocoOptions& options);  // S

// What is due after an inner step.
struct DilocoAction {
  bool starts = false;    // an average of the round's fragment
  bool finishes = false;  // that average, with an outer step: the round is over

  bool operator==(const DilocoAction&) const = default;
};

// After inner step `inner_step`, counted from 1.
DilocoAction plan_diloco(const DilocoOptions& options, std::int64_t inner_step);

// The fragment of a round: outer steps that were taken so far alone decide, so a round that failed
// is followed by one with the same fragment.
std::int64_t fragment_of_round(const DilocoOptions& options, std::int64_t outer_steps);

}  // namespace ladder
