// --objective self_distillation in a pipeline: every stage holds its part of the teacher next to its
// part of the student. The teacher is an average in fp32 of what the student's optimizer updates: its
// masters, or, if it has none, the parameters themselves.
#pragma once

#include "step8_pipeline_ga/objectives/step_objective.hpp"

namespace ladder {

StepObjective distillation_objective(const TrainOptions& options, const StagePlan& plan,
                                     const Mesh& mesh, const FlatModel& student,
                                     Optimizer& optimizer);

}  // namespace ladder
