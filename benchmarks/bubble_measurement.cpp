#include "benchmarks/bubble_measurement.hpp"

#include <ATen/ops/empty.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <chrono>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "common/core/check.hpp"
#include "common/core/trace.hpp"
#include "common/model/weight_gradients.hpp"
#include "step8_pipeline_ga/runner/pipeline_runner.hpp"

namespace ladder {
namespace {

using Clock = std::chrono::steady_clock;

void sleep_until(Clock::time_point begin, double seconds) {
  std::this_thread::sleep_until(begin + std::chrono::duration<double>(seconds));
}

// Passes its input on, [1, 1, numel]; each direction sleeps. Tokens [1, 1] become numel ones.
Model paced_chunk(const PipelineCosts& costs, std::int64_t numel) {
  const at::Tensor bias = at::zeros({1}).requires_grad_(true);
  const at::Tensor first_activation = at::ones({1, 1, numel});
  const auto forward = [=](const at::Tensor& input) {
    const Clock::time_point begin = Clock::now();
    const at::Tensor output = (input.is_floating_point() ? input : first_activation) + bias;
    sleep_until(begin, costs.forward_s);
    WeightGradientQueue* const queue = DeferWeightGradients::current();
    output.register_hook([=](const at::Tensor& /*gradient*/) {
      sleep_until(Clock::now(), queue == nullptr ? costs.backward_s : costs.input_backward_s);
      if (queue == nullptr) return;
      queue->push({bias, [=] {
                     sleep_until(Clock::now(), costs.weight_backward_s);
                     return at::zeros({1});
                   }});
    });
    return output;
  };
  return {{{.unit = {}, .forward = forward}}};
}

Microbatches paced_batch(std::int64_t num_microbatches) {
  const at::Tensor token = at::zeros({1, 1}, at::kLong);
  return Microbatches(std::vector<Microbatch>(static_cast<std::size_t>(num_microbatches),
                                              Microbatch{token, token, 1}));
}

const Objective kSum = {
    .count = [](const Microbatches& batch) { return batch.num_targets(); },
    .loss_sum = [](const at::Tensor& output, const Microbatch&) { return output.sum(); },
};

// What the runner's spans in the trace say, of all stages. Each computes as often as every other,
// so their records are equally long.
Timeline all_gather(const TraceLog& log, Communicator& stages) {
  constexpr std::int64_t kFields = 5;
  std::vector<double> own;
  for (const TracedSpan& span : log.spans()) {
    for (const ActionKind kind : {ActionKind::kForward, ActionKind::kBackward,
                                  ActionKind::kInputBackward, ActionKind::kWeightBackward}) {
      if (std::string_view(span.name) != name_of(kind)) continue;
      for (const std::int64_t field : {static_cast<std::int64_t>(kind), span.first.value,
                                       span.second.value, span.begin_ns, span.end_ns})
        own.push_back(static_cast<double>(field));
    }
  }
  const auto num_actions = std::ssize(own) / kFields;
  const at::Tensor all = at::empty({stages.size(), num_actions, kFields}, at::kDouble);
  stages.all_gather(at::tensor(own), all)->wait();
  Timeline timeline(static_cast<std::size_t>(stages.size()));
  const auto* value = all.const_data_ptr<double>();
  for (std::vector<TimedAction>& stage : timeline) {
    for (std::int64_t i = 0; i < num_actions; ++i, value += kFields) {
      stage.push_back({{.kind = static_cast<ActionKind>(value[0]),
                        .chunk = static_cast<int>(value[2]),
                        .microbatch = static_cast<std::int64_t>(value[1])},
                       1e-9 * value[3],
                       1e-9 * value[4]});
    }
  }
  return timeline;
}

}  // namespace

PipelineCosts PacedPipeline::costs() const {
  const double chunk_backward_s = backward_s / chunks_per_stage;
  return {.forward_s = forward_s / chunks_per_stage,
          .backward_s = chunk_backward_s,
          .input_backward_s = chunk_backward_s / 2,
          .weight_backward_s = chunk_backward_s / 2};
}

TimelineSummary PacedPipeline::predicted(int num_stages) const {
  const PipelinePlan plan = plan_pipeline(schedule, num_stages, num_microbatches, chunks_per_stage);
  return summarize(simulate(plan, costs()));
}

double PacedPipeline::predicted_s(int num_stages) const {
  if (schedule == Schedule::kZeroBubble && num_microbatches < num_stages)
    return predicted(num_stages).total_s;
  return formula_s(schedule, num_stages, num_microbatches, chunks_per_stage, costs());
}

Timeline measure(const PacedPipeline& pipeline, Communicator& stages, std::int64_t flush_size) {
  std::vector<Model> chunks;
  for (int i = 0; i < pipeline.chunks_per_stage; ++i)
    chunks.push_back(paced_chunk(pipeline.costs(), pipeline.message_numel));
  PipelineRunner runner(std::move(chunks), pipeline.message_numel, stages,
                        [&](std::int64_t num_microbatches) {
                          return plan_pipeline(pipeline.schedule, stages.size(), num_microbatches,
                                               pipeline.chunks_per_stage);
                        });
  const auto run = [&](std::int64_t num_microbatches, std::int64_t per_flush) {
    runner.accumulate_gradients(kSum, paced_batch(num_microbatches), /*num_targets=*/1, per_flush);
  };
  run(1, 1);
  TraceLog log;
  const TraceScope scope(&log);
  stages.barrier();
  run(pipeline.num_microbatches, flush_size > 0 ? flush_size : pipeline.num_microbatches);
  return all_gather(log, stages);
}

Timeline measure_rounds(const PacedPipeline& pipeline, Communicator& stages, int num_rounds) {
  check(num_rounds > 0, "measure_rounds: num_rounds is ", num_rounds);
  std::vector<std::pair<double, Timeline>> rounds;
  for (int round = 0; round < num_rounds; ++round) {
    Timeline timeline = measure(pipeline, stages);
    const double total_s = summarize(timeline).total_s;
    rounds.emplace_back(total_s, std::move(timeline));
  }
  std::sort(rounds.begin(), rounds.end(),
            [](const auto& a, const auto& b) { return a.first < b.first; });
  return std::move(rounds[rounds.size() / 2].second);
}

}  // namespace ladder
