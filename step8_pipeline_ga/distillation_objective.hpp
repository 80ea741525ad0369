// --objective self_distillation in a pipeline: every stage holds its part of the teacher beside that
// of the student.
#pragma once

#include "step8_pipeline_ga/step_objective.hpp"

namespace ladder {

StepObjective distillation_objective(const TrainOptions& options, const StagePlan& plan,
                                     const Mesh& mesh, const FlatModel& student);

}  // namespace ladder
