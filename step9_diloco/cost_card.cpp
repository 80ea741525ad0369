// The cost card of README.md as functions: tests compare the ledger and the meter with them.
#include <algorithm>

#include "common/train/cost.hpp"
#include "step9_diloco/diloco_plan.hpp"
#include "step9_diloco/fragments.hpp"
#include "step9_diloco/make_averager.hpp"
#include "step9_diloco/train.hpp"

namespace ladder::step9 {
namespace {

std::vector<Fragment> fragments_of(const TrainOptions& options) {
  return plan_fragments(layout_of(options), options.diloco.num_fragments);
}

// Elements of the largest fragment that the run comes to; 0 if it ends before its first average.
std::int64_t largest_fragment(const TrainOptions& options) {
  std::int64_t num_rounds = options.num_steps / steps_per_round(options.diloco), numel = 0;
  for (const Fragment& fragment : fragments_of(options))
    if (num_rounds-- > 0) numel = std::max(numel, fragment.numel);
  return numel;
}

}  // namespace

StateBytes state_bytes(const TrainOptions& options, int /*world_size*/, int /*rank*/) {
  const std::int64_t numel = layout_of(options).numel;
  StateBytes bytes = replica_state_bytes(options);
  bytes.parameters += 4 * numel;
  bytes.optimizer += 4 * numel;
  if (options.diloco.sync_delay > 0) bytes.gradients += 4 * largest_fragment(options);
  return bytes;
}

PeakBytes peak_bytes(const TrainOptions& options, int world_size, int rank) {
  PeakBytes peak = peak_of(state_bytes(options, world_size, rank));
  if (options.diloco.sync_delay == 0) peak.gradients += 4 * largest_fragment(options);
  return peak;
}

Traffic traffic_between(const TrainOptions& options, std::int64_t first_step,
                        std::int64_t last_step, int world_size, int rank) {
  const std::vector<Fragment> fragments = fragments_of(options);
  const std::int64_t save_every = options.output.save_every;
  std::int64_t last_shared = first_step;
  Traffic traffic;
  for (std::int64_t step = first_step + 1; step <= last_step; ++step) {
    const DilocoAction due = plan_diloco(options.diloco, step);
    if (due.starts) {
      const std::int64_t round = (step - 1) / steps_per_round(options.diloco);
      const auto index = static_cast<std::size_t>(fragment_of_round(options.diloco, round));
      traffic += average_traffic(options.diloco, fragments[index].numel, world_size, rank);
    }
    if (due.finishes || (save_every > 0 && step % save_every == 0) || world_size == 1) {
      traffic += scalars_traffic(4 * (step - last_shared) + 1, world_size, rank);
      last_shared = step;
    }
  }
  return traffic;
}

Traffic step_traffic(const TrainOptions& options, int world_size, int rank) {
  const std::int64_t length = steps_per_round(options.diloco);
  Traffic largest;
  for (std::int64_t round = 0; round < options.diloco.num_fragments; ++round) {
    const std::int64_t start = (round + 1) * length - options.diloco.sync_delay;
    TrainOptions unsaved = options;
    unsaved.output.save_every = 0;
    Traffic traffic = traffic_between(unsaved, start - 1, start, world_size, rank);
    if (options.diloco.sync_delay == 0)
      traffic = traffic_between(unsaved, start - length, start, world_size, rank);
    if (traffic.bytes_sent() > largest.bytes_sent()) largest = traffic;
  }
  return largest;
}

}  // namespace ladder::step9
