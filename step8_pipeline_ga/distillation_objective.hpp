// --objective self_distillation in a pipeline: every stage holds its part of the teacher beside that
// of the student. It averages what the student's optimizer really updates, in fp32: in 16 bits the
// student's masters, into masters of its own.
#pragma once

#include "step8_pipeline_ga/step_objective.hpp"

namespace ladder {

StepObjective distillation_objective(const TrainOptions& options, const StagePlan& plan,
                                     const Mesh& mesh, const FlatModel& student,
                                     Optimizer& optimizer);

}  // namespace ladder
