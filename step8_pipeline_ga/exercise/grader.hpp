// Grades 1F1B and the runner's backward: the reference, a learner's, or those that are known to be
// wrong.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "step8_pipeline_ga/runner/pipeline_runner.hpp"

namespace ladder::step8 {

// As plan_pipeline().
using MakePlan = std::function<PipelinePlan(Schedule schedule, int num_stages,
                                            std::int64_t num_microbatches, int chunks_per_stage)>;

// As PipelineRunner's constructor, and two of its members, which keep the runner alive.
struct AttemptedRunner {
  std::function<double(const Objective& objective, const Microbatches& batch, double num_targets,
                       std::int64_t num_microbatches, const OnWeightGradient& on_weight_gradient,
                       double loss_scale)>
      accumulate_gradients;
  std::function<std::vector<double>(const Objective& objective, const Microbatches& batch)>
      loss_sums;
};
using MakeRunner = std::function<AttemptedRunner(std::vector<Model> chunks, std::int64_t channels,
                                                 Communicator& stages, const Planner& planner,
                                                 const at::TensorOptions& activations)>;

template <class SomeRunner>
MakeRunner run_with() {
  return [](std::vector<Model> chunks, std::int64_t channels, Communicator& stages,
            const Planner& planner, const at::TensorOptions& activations) -> AttemptedRunner {
    const auto runner =
        std::make_shared<SomeRunner>(std::move(chunks), channels, stages, planner, activations);
    return {
        [runner](const auto&... arguments) { return runner->accumulate_gradients(arguments...); },
        [runner](const auto&... arguments) { return runner->loss_sums(arguments...); }};
  };
}

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
