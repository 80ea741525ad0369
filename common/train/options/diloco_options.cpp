#include "common/train/options/diloco_options.hpp"

#include "common/core/check.hpp"

namespace ladder {

void check_diloco(const DilocoOptions& options) {
  check_usage(options.sync_every >= 1, "--sync-every is ", options.sync_every,
              ", it must be at least 1");
  check_usage(options.num_fragments >= 1, "--fragments is ", options.num_fragments,
              ": a model has at least one fragment");
  check_usage(options.num_fragments <= options.sync_every, "--fragments ", options.num_fragments,
              " is more than --sync-every ", options.sync_every,
              ": each fragment needs an inner step of its own");
  check_usage(options.sync_every % options.num_fragments == 0, "--sync-every ", options.sync_every,
              " is not divisible by --fragments ", options.num_fragments,
              ": all rounds are equally long");
  check_usage(options.sync_delay >= 0 && options.sync_delay < steps_per_round(options),
              "--sync-delay is ", options.sync_delay, ", it must be from 0 to ",
              steps_per_round(options) - 1,
              ": one fragment is in flight at a time, and a round has ", steps_per_round(options),
              " inner steps (--sync-every / --fragments)");
  check_usage(options.alpha >= 0 && options.alpha <= 1, "--alpha is ", options.alpha,
              ", it must be from 0 (global parameters) to 1 (local ones)");
  check_usage(options.outer_lr >= 0, "--outer-lr is ", options.outer_lr,
              ", it must not be negative");
  check_usage(options.outer_momentum >= 0 && options.outer_momentum < 1, "--outer-momentum is ",
              options.outer_momentum, ", it must be at least 0 and below 1");
}

std::int64_t steps_per_round(const DilocoOptions& options) {
  return options.sync_every / options.num_fragments;
}

}  // namespace ladder
