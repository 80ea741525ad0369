// The cost card of README.md as functions: tests compare the ledger and the meter with them.
#include "step9_diloco/cost_card.hpp"
#include "step9_diloco/theory.hpp"

#include <algorithm>
#include <map>

#include "common/comm/slice.hpp"
#include "common/train/cost.hpp"
#include "common/train/sends.hpp"
#include "step9_diloco/diloco_options.hpp"
#include "step9_diloco/diloco_plan.hpp"
#include "step9_diloco/fragments.hpp"
#include "step9_diloco/wire_format.hpp"

namespace ladder {

std::vector<Send> compressed_average_sends(std::int64_t numel, WireFormat format, int world_size,
                                           int rank) {
  std::vector<Send> sends;
  for (int worker = 0; worker < world_size; ++worker) {
    if (worker == rank) continue;
    for (const int slice : {worker, rank}) {
      sends.push_back({.operation = CommOp::kSend,
                       .numel = encoded_bytes(slice_of(numel, world_size, slice).numel, format),
                       .element_bytes = 1,
                       .wait = Wait::kForNothing,
                       .group = {.first = rank, .stride = worker - rank, .size = 2}});
    }
  }
  const RankGroup world = {.size = world_size};
  sends.push_back({.operation = CommOp::kRecv, .group = world, .times = 2 * (world_size - 1)});
  return sends;
}

namespace {

std::vector<Send> exact_average_sends(std::int64_t numel, int world_size) {
  const RankGroup world = {.size = world_size};
  return {{.operation = CommOp::kAllGather,
           .numel = world_size * num_norm_blocks(numel),
           .element_bytes = 4,
           .group = world},
          {.operation = CommOp::kAllReduce, .numel = numel, .element_bytes = 4, .group = world}};
}

}  // namespace

std::vector<Send> average_sends(const TrainOptions& options, std::int64_t numel, int world_size,
                                int rank) {
  const auto& diloco = options.get<DilocoOptions>();
  std::vector<Send> sends = {{.operation = CommOp::kAllReduce,
                              .numel = numel,
                              .element_bytes = 4,
                              .group = {.size = world_size}}};
  if (diloco.wire != WireFormat::kFp32) {
    sends = compressed_average_sends(numel, diloco.wire, world_size, rank);
  } else if (options.gradient_sum == SumMode::kExact) {
    sends = exact_average_sends(numel, world_size);
  }
  sends.back().wait = Wait::kForSteps;
  sends.back().needed_by = static_cast<int>(diloco.sync_delay);
  return sends;
}

namespace step9 {
namespace {

std::vector<Fragment> fragments_of(const TrainOptions& options) {
  return plan_fragments(layout_of(options), options.get<DilocoOptions>().num_fragments);
}

// Elements of the largest fragment that the run comes to; 0 if it ends before its first average.
std::int64_t largest_fragment(const TrainOptions& options) {
  std::int64_t num_rounds = options.num_steps / steps_per_round(options.get<DilocoOptions>()),
               numel = 0;
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
  if (options.get<DilocoOptions>().sync_delay > 0) bytes.gradients += 4 * largest_fragment(options);
  return bytes;
}

StateBytes transient_bytes(const TrainOptions& options, int /*world_size*/, int /*rank*/) {
  if (options.get<DilocoOptions>().sync_delay > 0) return {};
  return {.gradients = 4 * largest_fragment(options)};
}

std::int64_t working_bytes(const TrainOptions& options, int world_size, int /*rank*/) {
  const auto& diloco = options.get<DilocoOptions>();
  const std::int64_t numel = largest_fragment(options);
  Buffers buffers = {.after = 4.0 * static_cast<double>(largest_unit(layout_of(options)))};
  double average = fold_bytes(options, numel, 4, world_size);
  if (options.gradient_sum == SumMode::kExact)  // maxima of all workers
    average += 4.0 * (world_size + 4) * (numel / kNormBlock + 1);
  if (diloco.wire != WireFormat::kFp32) {  // all slices, as they come and go, and one being encoded
    const std::int64_t slice = (numel + world_size - 1) / world_size;
    average = 2.0 * world_size * encoded_bytes(slice, diloco.wire) + 16.0 * slice;
  }
  (diloco.sync_delay > 0 ? buffers.in_backward : buffers.after) += average;
  return ladder::working_bytes(options, buffers);
}

std::vector<Send> sends(const TrainOptions& options, const StepsTaken& steps, int world_size,
                        int rank) {
  const auto& diloco = options.get<DilocoOptions>();
  const std::vector<Fragment> fragments = fragments_of(options);
  const std::int64_t save_every = options.output.save_every;
  std::map<std::int64_t, std::int64_t> averages, sums;  // how many, by their numbers of elements
  std::int64_t last_shared = steps.first;
  for (std::int64_t step = steps.first + 1; step <= steps.last; ++step) {
    const DilocoAction due = plan_diloco(diloco, step);
    if (due.starts) {
      const std::int64_t index = fragment_of_round(diloco, (step - 1) / steps_per_round(diloco));
      ++averages[fragments[static_cast<std::size_t>(index)].numel];
    }
    if (due.finishes || (save_every > 0 && step % save_every == 0) || world_size == 1) {
      ++sums[4 * (step - last_shared) + 1];
      last_shared = step;
    }
  }
  SendPlan plan(steps, {.size = world_size});
  for (const auto& [numel, times] : averages)
    for (const Send& send : average_sends(options, numel, world_size, rank))
      plan.add(send, send.times * times);
  for (const auto& [numel, times] : sums)
    plan.add({.numel = numel, .element_bytes = sizeof(double)}, times);
  return plan.sends();
}

OptimizerWork optimizer_work(const TrainOptions& options, int /*world_size*/, int /*rank*/) {
  const auto numel = static_cast<double>(layout_of(options).numel);
  const auto sync_every = static_cast<double>(options.get<DilocoOptions>().sync_every);
  return {.updated = numel + numel / sync_every, .normed = 2 * numel};
}

Tries tries(const TrainOptions& options, int world_size) {
  if (world_size == 1) return {};
  if (options.given.contains("sync-every")) return Tries(1);
  return {{"every 20 steps", "--sync-every 20"}, {"every 100 steps", "--sync-every 100"}};
}

Traffic largest_traffic(const TrainOptions& options, int world_size, int rank) {
  const auto& diloco = options.get<DilocoOptions>();
  const std::int64_t length = steps_per_round(diloco);
  TrainOptions unsaved = options;
  unsaved.output.save_every = 0;
  Traffic largest;
  for (std::int64_t round = 0; round < diloco.num_fragments; ++round) {
    const std::int64_t start = (round + 1) * length - diloco.sync_delay;
    const std::int64_t first = start - (diloco.sync_delay == 0 ? length : 1);
    const Traffic sent = traffic_of(sends(unsaved, {first, start}, world_size, rank), rank);
    if (sent.bytes_sent() > largest.bytes_sent()) largest = sent;
  }
  return largest;
}

}  // namespace step9
}  // namespace ladder
