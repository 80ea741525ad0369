#include "step0_single_gpu/judge/measured.hpp"

#include "common/core/check.hpp"
#include "common/core/memory_ledger.hpp"

namespace ladder {

std::vector<std::string> differences_from_theory(const Trainer& trainer,
                                                 const TrainOptions& options,
                                                 const TrainReport& report,
                                                 const MemoryReading& before, int world_size,
                                                 int rank, bool has_scratch) {
  std::vector<std::string> lines;
  const auto expect = [&lines](const std::string& what, std::int64_t found, std::int64_t wanted,
                               const char* if_less = "", const char* if_more = "") {
    if (found == wanted) return;
    lines.push_back(concat(what, " ", found, ", not ", wanted, found < wanted ? if_less : if_more));
  };
  const auto live = [&](MemoryCategory category) {
    return report.memory.live(category) - before.live(category);
  };
  const StateBytes held = trainer.state_bytes(options, world_size, rank);
  const std::int64_t scratch = live(MemoryCategory::kCommunication);
  const std::int64_t all = report.memory.total_live_bytes - before.total_live_bytes - scratch -
                           live(MemoryCategory::kOther);  // a cache
  const std::int64_t all_wanted = held.total() - held.communication;
  const auto expect_held = [&](MemoryCategory category, std::int64_t wanted) {
    expect(concat("bytes of ", to_string(category), " held between steps:"), live(category), wanted,
           all == all_wanted ? ", but nothing is missing in all: is a MemoryScope forgotten?" : "");
  };
  expect_held(MemoryCategory::kParameters, held.parameters);
  expect_held(MemoryCategory::kGradients, held.gradients);
  expect_held(MemoryCategory::kOptimizer, held.optimizer);
  if (!has_scratch) expect_held(MemoryCategory::kCommunication, held.communication);
  expect("bytes of all tensors held between steps:", all, all_wanted);
  const auto expect_most = [&](MemoryCategory category, std::int64_t wanted) {
    expect(concat("most bytes of ", to_string(category), " at any time:"),
           report.memory.peak(category) - before.live(category), wanted,
           ", less than theory: is something waited for or freed too early, so that less overlaps, "
           "or allocated outside of a MemoryScope?",
           ", more than theory: is there a copy, another type, or something kept too long?");
  };
  const PeakBytes peak = peak_bytes_of(trainer, options, world_size, rank);
  expect_most(MemoryCategory::kParameters, peak.parameters);
  expect_most(MemoryCategory::kGradients, peak.gradients);
  expect_most(MemoryCategory::kOptimizer, peak.optimizer);
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
