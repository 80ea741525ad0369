// The schedule as it is shown without training: drawn, as data, and as the time that stages idle.
#include <nlohmann/json.hpp>

#include "common/core/check.hpp"
#include "common/model/model_cost.hpp"
#include "step8_pipeline_ga/pipeline_options.hpp"
#include "step8_pipeline_ga/schedule/planner.hpp"
#include "step8_pipeline_ga/schedule/schedule_check.hpp"
#include "step8_pipeline_ga/schedule/schedule_drawing.hpp"
#include "step8_pipeline_ga/schedule/schedule_simulation.hpp"
#include "step8_pipeline_ga/stage/pipeline_cut.hpp"
#include "step8_pipeline_ga/theory.hpp"

namespace ladder::step8 {

std::string show_schedule(const TrainOptions& options, int world_size, bool is_trace) {
  const auto& pipeline = options.get<PipelineOptions>();
  const int num_stages = pipeline.num_stages > 0 ? pipeline.num_stages : world_size;
  constexpr std::int64_t kMost = 100'000;
  const std::int64_t num_forwards =
      num_stages * pipeline.chunks_per_stage * options.data.num_microbatches;
  check_usage(num_forwards <= kMost, "--show-schedule of ", num_stages,
              " stages (--pipeline-stages), ", pipeline.chunks_per_stage,
              " chunk(s) per stage (--chunks-per-stage) and ", options.data.num_microbatches,
              " microbatches (--num-microbatches) has ", num_forwards,
              " forwards to draw; choose fewer, at most ", kMost);
  const PipelinePlan plan = planner_of(options, num_stages)(options.data.num_microbatches);
  check_plan(plan);
  const std::string title = concat(to_string(pipeline.schedule), ", ", num_stages, " stages, ",
                                   plan.num_microbatches, " microbatches");
  if (!is_trace) return title + "\n" + draw_text(simulate(plan, {}), "slots");
  const Timeline in_ms = simulate(
      plan,
      {.forward_s = 1e-3, .backward_s = 2e-3, .input_backward_s = 1e-3, .weight_backward_s = 1e-3});
  return trace_of(in_ms, title + ", a slot is 1 ms");
}

Json schedule_json(const TrainOptions& options, int world_size) {
  if (options.get<PipelineOptions>().docs_per_step > 0) return nullptr;  // each step decides
  const int num_stages = num_stages_of(options, world_size);
  const PipelinePlan plan = planner_of(options, num_stages)(options.data.num_microbatches);
  Json stages = Json::array();
  for (const std::vector<Action>& actions : plan.stages) {
    Json& stage = stages.emplace_back(Json::array());
    for (const auto& [kind, chunk, microbatch] : actions) {
      if (!is_message(kind))
        stage.push_back(concat("FBIW"[static_cast<int>(kind)], chunk, ".", microbatch));
    }
  }
  const PipelineCut cut =
      cut_layers(forward_flops(options.model), num_stages, plan.chunks_per_stage);
  return {{"chunks", cut.chunks}, {"stages", stages}};
}

double bubble(const TrainOptions& options, int world_size) {
  const Planner planner = planner_of(options, num_stages_of(options, world_size));
  return summarize(simulate(planner(options.data.num_microbatches), {})).bubble_per_ideal;
}

}  // namespace ladder::step8
