#include "step8_pipeline_ga/inference_model.hpp"

#include "common/train/build_model.hpp"
#include "common/train/checkpoint.hpp"
#include "step8_pipeline_ga/pipeline_use.hpp"
#include "step8_pipeline_ga/stage_state.hpp"

namespace ladder {

InferenceModel::InferenceModel(const TrainOptions& options, const StagePlan& plan, const Mesh& mesh)
    : plan_(plan),
      mesh_(mesh),
      flat_(plan.layout),
      pipeline_(chunks_of(build_model(options, plan.cut.layers_of(plan.stage), flat_), plan.cut,
                          plan.stage),
                options.model.channels, mesh_.stages, planner_of(options, mesh.num_stages())) {}

std::string InferenceModel::load(const std::string& checkpoint) {
  return load_parameters(checkpoint_in("--dpo-reference", checkpoint),
                         stage_parameters(plan_, flat_, mesh_));
}

void InferenceModel::forward(const Microbatches& batch, const OutputVisitor& visit) {
  pipeline_.forward(batch, visit);
}

}  // namespace ladder
