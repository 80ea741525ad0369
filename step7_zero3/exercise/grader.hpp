// Grades a sharded model: the reference, a learner's, or one that is known to be wrong.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "common/comm/communicator.hpp"
#include "common/model/model.hpp"
#include "step5_zero1/shard_plan.hpp"

namespace ladder::step7 {

// What a sharded model can do, and what a GradientSharder must know of it.
struct ModelAttempt {
  std::function<at::Tensor(const at::Tensor& tokens)> forward;
  std::vector<NamedTensor> leaves;
  ShardPlan plan;
};

// Makes one that lives as long as the function does; the communicator outlives it.
using MakeModel =
    std::function<ModelAttempt(const ModelBuilder& build, int prefetch, Communicator& comm)>;

// Says what is wrong, a line each, with the value found and the value wanted; nothing if all is
// right. Stops after the first kind of model with a fault. Collective: the same lines on every
// rank, part by part those of the rank that found most. Ranks that do not do the same are a fault
// like any other, not a hang; neither is a parameter a crash that is read while its memory is gone.
std::vector<std::string> grade(const MakeModel& attempt, Communicator& comm);

}  // namespace ladder::step7
