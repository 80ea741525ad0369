// Grades 1F1B and the runner's backward: the reference, a learner's, or those that are known to be
// wrong.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "step8_pipeline_ga/pipeline_runner.hpp"

namespace ladder::step8 {

// As plan_pipeline().
using MakePlan = std::function<PipelinePlan(Schedule schedule, int num_stages,
                                            std::int64_t num_microbatches, int chunks_per_stage)>;

// As PipelineRunner's constructor, and its accumulate_gradients(). What is made keeps the runner
// alive.
using AccumulateGradients = std::function<double(
    const Objective& objective, const Microbatches& batch, double num_targets,
    std::int64_t num_microbatches, const OnWeightGradient& on_weight_gradient)>;
using MakeRunner =
    std::function<AccumulateGradients(std::vector<Model> chunks, std::int64_t channels,
                                      Communicator& stages, const Planner& planner)>;

// Say what is wrong, a line for each fault, with the value found and the value wanted; nothing if
// all is right. Each line begins with its part, which stops after the first pipeline with a fault.
//
// Collective: the same lines on every rank. A rank that throws, or starts other messages than the
//             plan's, does not make the others wait forever.
std::vector<std::string> grade_plan(const MakePlan& attempt, Communicator& comm);  // part 1
// Part 2: with plans that do not come from part 1.
std::vector<std::string> grade_runner(const MakeRunner& attempt, Communicator& comm);

// Both parts. If only one has faults, the last line says that the other is right.
std::vector<std::string> grade(const MakePlan& plan, const MakeRunner& runner, Communicator& comm);

}  // namespace ladder::step8
