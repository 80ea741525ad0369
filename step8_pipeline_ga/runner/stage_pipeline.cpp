#include "step8_pipeline_ga/runner/stage_pipeline.hpp"

#include <utility>

#include "common/core/check.hpp"
#include "common/core/torch_types.hpp"
#include "common/model/build_layers.hpp"
#include "common/train/build_model.hpp"
#include "step8_pipeline_ga/pipeline_options.hpp"

namespace ladder {

PipelineRunner stage_pipeline(const TrainOptions& options, const StagePlan& plan, FlatModel& flat,
                              Communicator& stages) {
  const Model model = build_model(options, plan.cut.layers_of(plan.stage), plan.parts, flat);
  std::vector<Model> chunks;
  auto layer = model.layers.begin();
  for (const std::size_t c : plan.cut.chunks_on(plan.stage)) {
    const auto end = layer + static_cast<std::ptrdiff_t>(plan.cut.chunks[c].size());
    chunks.push_back({{layer, end}, model.parts});
    layer = end;
  }
  stages.promise_message_order();  // the runner checks its plans (schedule_check.hpp)
  return {std::move(chunks), options.model.channels, stages, planner_of(options, stages.size()),
          at::TensorOptions()
              .dtype(to_torch(options.model.precision.params))
              .device(to_torch(options.device))};
}

std::string describe_pipeline(const TrainOptions& options, const PipelineCut& cut) {
  const auto& pipeline = options.get<PipelineOptions>();
  const std::string docs = pipeline.docs_per_step > 0
                               ? concat("of ", pipeline.docs_per_step, " documents or more ")
                               : "";
  return concat(to_string(cut), pipeline.accumulation, " flush(es) ", docs, "per step, schedule ",
                to_string(pipeline.schedule));
}

}  // namespace ladder
