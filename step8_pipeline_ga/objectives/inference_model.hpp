// A second copy of a pipeline's model, stage by stage, that is only run forward: a frozen
// reference, or a teacher. 4 bytes per parameter of the stage, 2 in 16 bits.
#pragma once

#include <filesystem>
#include <string>

#include "common/comm/mesh.hpp"
#include "common/optim/flat_model.hpp"
#include "common/train/options/options.hpp"
#include "common/train/start.hpp"
#include "step8_pipeline_ga/runner/stage_pipeline.hpp"
#include "step8_pipeline_ga/stage/stage_state.hpp"

namespace ladder {

class InferenceModel {
 public:
  // The parameters are those of a new model. Lifetime: the mesh's communicators outlive it.
  InferenceModel(const TrainOptions& options, const StagePlan& plan, const Mesh& mesh)
      : plan_(plan),
        mesh_(mesh),
        model_(options.model),
        flat_(plan.layout),
        pipeline_(stage_pipeline(options, plan, flat_, mesh_.stages)) {}

  // This stage's parameters, to be written to.
  const at::Tensor& params() const { return flat_.params(); }

  // Reads this stage's part of a checkpoint, or of another program's model (start.hpp). Local. Throws
  // CheckError if it is damaged, or belongs to another model or tokenizer.
  void load(const std::filesystem::path& source, const std::string& tokenizer) {
    TrainState state;
    state.parameters = stage_parameters(plan_, flat_, mesh_);
    state.tokenizer = tokenizer;
    state.model = model_;
    Start(source).load(state, model_.tie_embeddings);
  }

  // Runs the microbatches forward, and calls `visit` with the outputs of each, on the last stage.
  // Collective over the stages.
  void forward(const Microbatches& batch, const OutputVisitor& visit) {
    pipeline_.forward(batch, visit);
  }

 private:
  StagePlan plan_;
  Mesh mesh_;
  ModelOptions model_;
  FlatModel flat_;
  PipelineRunner pipeline_;
};

}  // namespace ladder
