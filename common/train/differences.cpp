#include "common/train/differences.hpp"

#include <algorithm>
#include <limits>
#include <optional>

#include "common/core/check.hpp"
#include "common/optim/norm.hpp"
#include "common/optim/optimizer.hpp"
#include "common/train/layout.hpp"
#include "common/train/report/console.hpp"

namespace ladder {
namespace {

// What differs.
struct Lines {
  std::vector<std::string> all;

  void expect(const std::string& what, std::int64_t found, std::int64_t wanted,
              const char* if_less = "", const char* if_more = "") {
    if (found == wanted) return;
    all.push_back(concat(what, " ", found, ", not ", wanted, found < wanted ? if_less : if_more));
  }
};

// The most bytes that may stay alive under this name, without being state. The optimizer computes in
// fp32: what has neither 4 bytes nor a master passes through a piece of them. A table of rotary
// positions has a cosine and a sine for each position and pair of a head's channels.
std::int64_t most_of_others(const std::string& name, const Theory& theory,
                            const TrainOptions& options) {
  const ModelOptions& model = options.model;
  const Precision& precision = model.precision;
  const bool is_of_any_size = std::ranges::find(theory.keeps, name) != theory.keeps.end() ||
                              (name == "block sums" && options.device.is_cuda());
  if (is_of_any_size) return std::numeric_limits<std::int64_t>::max();
  if (name == "widened for the update")
    return 4 * kWidePiece *
           (is_16_bit(precision.grads) +
            (precision.has_16_bit_params() && options.optimizer.masters != Masters::kFp32));
  if (name == "quanta" && options.gradient_sum == SumMode::kExact) {
    std::int64_t num_blocks = 0;
    for (const FlatUnit& unit : layout_of(options).units) num_blocks += num_norm_blocks(unit.numel);
    return 2 * 4 * num_blocks;  // also those that a checkpoint has brought
  }
  if (name == "rotary positions")
    return theory.num_models * 4 * model.context * head_channels_of(model);
  return 0;
}

void compare_memory(Lines& lines, const Theory& theory, const TrainOptions& options,
                    const TrainReport& report, const MemoryReading& before, int world_size,
                    int rank) {
  const auto live = [&](MemoryCategory category) {
    return report.memory.live(category) - before.live(category);
  };
  const StateBytes held = theory.state_bytes(options, world_size, rank);
  const std::int64_t scratch = live(MemoryCategory::kCommunication);
  const std::int64_t all = report.memory.total_live_bytes - before.total_live_bytes - scratch -
                           live(MemoryCategory::kOther);
  const std::int64_t all_wanted = held.total() - held.communication;
  const auto expect_held = [&](MemoryCategory category, std::int64_t wanted) {
    const bool is_elsewhere = all == all_wanted && category != MemoryCategory::kCommunication;
    lines.expect(
        concat("bytes of ", to_string(category), " held between steps:"), live(category), wanted,
        is_elsewhere ? ", but nothing is missing in all: is a MemoryScope forgotten?" : "");
  };
  expect_held(MemoryCategory::kParameters, held.parameters);
  expect_held(MemoryCategory::kGradients, held.gradients);
  expect_held(MemoryCategory::kOptimizer, held.optimizer);
  if (!theory.holds_scratch(options))
    expect_held(MemoryCategory::kCommunication, held.communication);
  lines.expect("bytes of all tensors held between steps:", all, all_wanted);
  for (const auto& [name, bytes] : report.memory.other_bytes) {
    const auto known = before.other_bytes.find(name);
    const std::int64_t own = bytes - (known == before.other_bytes.end() ? 0 : known->second);
    if (const std::int64_t most = most_of_others(name, theory, options); own > most)
      lines.all.push_back(
          concat("bytes of ", name, " held between steps: ", own, ", more than ", most));
  }
  const auto expect_most = [&](MemoryCategory category, std::int64_t wanted) {
    lines.expect(
        concat("most bytes of ", to_string(category), " at any time:"),
        report.memory.peak(category) - before.live(category), wanted,
        ", less than theory: is something waited for or freed too early, so that less overlaps, "
        "or allocated outside of a MemoryScope?",
        ", more than theory: is there a copy, another type, or something kept too long?");
  };
  const StateBytes peak = theory.peak_bytes(options, world_size, rank);
  expect_most(MemoryCategory::kParameters, peak.parameters);
  expect_most(MemoryCategory::kGradients, peak.gradients);
  expect_most(MemoryCategory::kOptimizer, peak.optimizer);
  // Pages are counted on the CPU. What was freed before the run may be used again.
  const std::int64_t in_tensors = std::max(report.memory.peak_bytes, report.save_peak_bytes);
  if (options.device.is_cpu() && report.resident.peak_bytes > 0 &&
      report.resident.peak_bytes < in_tensors)
    lines.all.push_back(concat("bytes resident at most: ", report.resident.peak_bytes, ", but ",
                               in_tensors, " were in tensors"));
}

// What the rank has read of its windows, each of which is one token longer than its targets. Nothing
// for rows of other lengths, for steps that were begun again or read no new data, and where a rank may
// have a microbatch without a row, so that all have as many.
std::optional<std::int64_t> data_bytes_theory(const TrainOptions& options,
                                              const TrainReport& report) {
  if (options.data.rows != Rows::kWindows || !batch_shape(options).is_of_tokens() ||
      options.data.overfit_one_batch || options.gradient_sum == SumMode::kExact ||
      report.token_bytes == 0)
    return std::nullopt;
  return report.token_bytes * (options.model.context + 1) * report.batch_counts.rows;
}

}  // namespace

StepsTaken steps_of(const TrainReport& report) {
  const auto num_steps = static_cast<std::int64_t>(report.losses.size());
  return {report.first_step, report.first_step + num_steps, report.batch_counts};
}

void add_theory(TrainReport& report, const TrainOptions& options, const Theory& theory,
                int world_size, int rank, const Machines& machines) {
  report.memory_theory = theory.state_bytes(options, world_size, rank);
  report.peak_theory = theory.peak_bytes(options, world_size, rank);
  report.traffic_theory =
      traffic_theory(theory, options, steps_of(report), world_size, rank, machines);
  report.data_bytes_theory = data_bytes_theory(options, report);
  if (is_simulated(options)) report.bubble = theory.bubble(options, world_size);
  if (!report.losses.empty())
    report.differences =
        differences_from_theory(theory, options, report, {}, world_size, rank, machines);
}

std::vector<std::string> differences_from_theory(const Theory& theory, const TrainOptions& options,
                                                 const TrainReport& report,
                                                 const MemoryReading& before, int world_size,
                                                 int rank, const Machines& machines) {
  Lines lines;
  if (has_own_ledger(options))
    compare_memory(lines, theory, options, report, before, world_size, rank);
  const Traffic traffic =
      traffic_theory(theory, options, steps_of(report), world_size, rank, machines);
  for (int i = 0; i < kNumCommOps; ++i) {
    const auto op = static_cast<CommOp>(i);
    const std::string of_op =
        concat(to_string(op), " in ", count_of(std::ssize(report.losses), "step"), ":");
    lines.expect("calls of " + of_op, report.traffic[op].calls, traffic[op].calls);
    lines.expect("bytes sent by " + of_op, report.traffic[op].bytes_sent, traffic[op].bytes_sent);
    lines.expect("messages of " + of_op, report.traffic[op].messages, traffic[op].messages);
    lines.expect("bytes sent to other machines by " + of_op, report.traffic[op].outer_bytes,
                 traffic[op].outer_bytes);
  }
  if (const auto data = data_bytes_theory(options, report))
    lines.expect("bytes of data read:", report.data_bytes_read, *data);
  return lines.all;
}

}  // namespace ladder
