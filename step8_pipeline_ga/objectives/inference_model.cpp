#include "step8_pipeline_ga/objectives/inference_model.hpp"

#include "common/train/checkpoint/checkpoint.hpp"
#include "step8_pipeline_ga/runner/stage_pipeline.hpp"
#include "step8_pipeline_ga/stage/stage_state.hpp"

namespace ladder {

InferenceModel::InferenceModel(const TrainOptions& options, const StagePlan& plan, const Mesh& mesh)
    : plan_(plan),
      mesh_(mesh),
      unshaped_(unshaped_options(options.model)),
      flat_(plan.layout),
      pipeline_(stage_pipeline(options, plan, flat_, mesh_.stages)) {}

void InferenceModel::load(const std::filesystem::path& checkpoint, const std::string& tokenizer) {
  TrainState state;
  state.parameters = stage_parameters(plan_, flat_, mesh_);
  state.tokenizer = tokenizer;
  state.unshaped = unshaped_;
  load_parameters(checkpoint, state);
}

void InferenceModel::forward(const Microbatches& batch, const OutputVisitor& visit) {
  pipeline_.forward(batch, visit);
}

}  // namespace ladder
