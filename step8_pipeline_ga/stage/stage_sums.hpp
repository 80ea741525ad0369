// Sums over the stages of one replica: the norm of a model that no stage holds completely, and the
// gradient of a tied embedding, of which two stages have a part.
//
// Collective over the stages: every stage of a replica calls these at the same point.
#pragma once

#include <memory>

#include "common/comm/communicator.hpp"
#include "common/optim/flat_model.hpp"
#include "step8_pipeline_ga/stage/stage_plan.hpp"

namespace ladder {

// The norm of the whole model's parameters or gradients, of which `flat` [plan.layout.numel] is
// this stage's part. To the bit that of one process: each stage fills in its own block sums, one
// double per 1024 elements, and all of them are added up in the whole model's order.
double pipeline_norm(const StagePlan& plan, const at::Tensor& flat, Communicator& stages);

// The group of the first and the last stage, if they share a tied embedding; null on all other
// stages, and everywhere if there is nothing to share. Collective over the stages.
std::unique_ptr<Communicator> tied_stages(const StagePlan& plan, Communicator& stages);

// Adds up the two parts of the tied embedding's gradient, on both stages: one all-reduce of V·C
// elements. Does nothing without a group. Both then take the same optimizer steps, so that the copy
// stays equal to the original.
void all_reduce_tied_gradient(const StagePlan& plan, FlatGradients& grads, Communicator* tied);

}  // namespace ladder
