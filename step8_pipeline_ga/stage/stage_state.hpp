// Checkpoints of a model that is spread over stages: the same files as those of one process.
//
// A save goes tensor by tensor. The rank that owns a tensor sends it to the replica's first rank,
// which writes it and frees it before the next one arrives. So no rank ever holds more than its own
// stage and one tensor, which is whole if ranks have parts of it. A load needs no messages: every rank reads the file and keeps what belongs to its
// stage. The replicas are equal; the first one writes.
//
// Collective over the ranks of the first replica: saving what this returns. Construction and load
// are local.
#pragma once

#include <string>
#include <vector>

#include "common/comm/mesh.hpp"
#include "common/optim/flat_model.hpp"
#include "common/train/checkpoint/train_state.hpp"
#include "step8_pipeline_ga/stage/stage_plan.hpp"

namespace ladder {

// The parameters alone. Lifetime: the mesh's communicators outlive the result.
StateTensors stage_parameters(const StagePlan& plan, const FlatModel& model, const Mesh& mesh);

// What a trainer with a second model adds to a checkpoint.
struct AddedState {
  // They have this stage's layout, and are stored beside the optimizer's: each under the names of
  // the parameters, with a dot and its own name appended.
  std::vector<NamedTensor> tensors = {};
  FrozenReference reference = {};
};

// Lifetime: the arguments outlive the state, but for the plan.
TrainState stage_state(const StagePlan& plan, const FlatModel& model, Optimizer& optimizer,
                       BatchStream& batches, const Mesh& mesh, const AddedState& added = {});

}  // namespace ladder
