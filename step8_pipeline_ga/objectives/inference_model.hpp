// A second copy of a pipeline's model, stage by stage, that is only run forward: a frozen
// reference, or a teacher. 4 bytes per parameter of the stage, 2 in 16 bits.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

#include "common/comm/mesh.hpp"
#include "common/optim/flat_model.hpp"
#include "common/train/options/options.hpp"
#include "step8_pipeline_ga/runner/pipeline_runner.hpp"
#include "step8_pipeline_ga/stage/stage_plan.hpp"

namespace ladder {

class InferenceModel {
 public:
  // Its parameters are those of a new model. Lifetime: the mesh's communicators outlive it.
  InferenceModel(const TrainOptions& options, const StagePlan& plan, const Mesh& mesh);

  // This stage's parameters, to be written to.
  const at::Tensor& params() const { return flat_.params(); }

  // Reads this stage's part of a checkpoint. Local. Throws CheckError if it is damaged, or belongs
  // to another model or tokenizer.
  void load(const std::filesystem::path& checkpoint, const std::string& tokenizer);

  // Runs the microbatches forward, and calls `visit` with the outputs of each, on the last stage.
  // Collective over the stages.
  void forward(const Microbatches& batch, const OutputVisitor& visit);

 private:
  StagePlan plan_;
  Mesh mesh_;
  Json unshaped_;
  FlatModel flat_;
  PipelineRunner pipeline_;
};

}  // namespace ladder
