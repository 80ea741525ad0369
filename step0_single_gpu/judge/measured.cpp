#include "step0_single_gpu/judge/measured.hpp"

#include "common/core/check.hpp"

namespace ladder {

std::vector<std::string> differences_from_theory(const Trainer& trainer,
                                                 const TrainOptions& options,
                                                 const TrainReport& report,
                                                 const MemoryReading& before, int world_size,
                                                 int rank, bool has_scratch) {
  std::vector<std::string> lines;
  const auto expect = [&lines](const std::string& what, std::int64_t found, std::int64_t wanted) {
    if (found != wanted) lines.push_back(concat(what, " ", found, ", not ", wanted));
  };
  const auto live = [&](MemoryCategory category) {
    return report.memory.live(category) - before.live(category);
  };
  const StateBytes held = trainer.state_bytes(options, world_size, rank);
  const std::int64_t scratch = live(MemoryCategory::kCommunication);
  expect("bytes of parameters held between steps:", live(MemoryCategory::kParameters),
         held.parameters);
  expect("bytes of gradients held between steps:", live(MemoryCategory::kGradients),
         held.gradients);
  expect("bytes of optimizer state held between steps:", live(MemoryCategory::kOptimizer),
         held.optimizer);
  if (!has_scratch)
    expect("bytes of communication held between steps:", scratch, held.communication);
  expect("bytes of all tensors held between steps:",
         report.memory.total_live_bytes - before.total_live_bytes - scratch -
             live(MemoryCategory::kOther),  // a cache
         held.total() - held.communication);
  const auto most = [&](MemoryCategory category) {
    return report.memory.peak(category) - before.live(category);
  };
  const PeakBytes peak = peak_bytes_of(trainer, options, world_size, rank);
  expect("most bytes of parameters at any time:", most(MemoryCategory::kParameters),
         peak.parameters);
  expect("most bytes of gradients at any time:", most(MemoryCategory::kGradients), peak.gradients);
  expect("most bytes of optimizer state at any time:", most(MemoryCategory::kOptimizer),
         peak.optimizer);
  const Traffic traffic = trainer.traffic(options, steps_of(report), world_size, rank);
  for (int i = 0; i < kNumCommOps; ++i) {
    const auto op = static_cast<CommOp>(i);
    const std::size_t num_steps = report.losses.size();
    const std::string of_op =
        concat(to_string(op), " in ", num_steps, num_steps == 1 ? " step:" : " steps:");
    expect("calls of " + of_op, report.traffic[op].calls, traffic[op].calls);
    expect("bytes sent by " + of_op, report.traffic[op].bytes_sent, traffic[op].bytes_sent);
    expect("messages of " + of_op, report.traffic[op].messages, traffic[op].messages);
  }
  return lines;
}

}  // namespace ladder
