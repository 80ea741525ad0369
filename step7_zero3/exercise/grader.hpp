// Grades a sharded GPT: the reference, a learner's, or one that is known to be wrong.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "common/comm/communicator.hpp"
#include "common/model/gpt.hpp"
#include "step5_zero1/shard_plan.hpp"

namespace ladder::step7 {

// What a sharded GPT can do, and what a GradientSharder must know of it.
struct GptAttempt {
  std::function<at::Tensor(const at::Tensor& tokens)> forward;
  std::function<at::Tensor(const at::Tensor& tokens, const at::Tensor& targets)> loss_sum;
  std::vector<NamedTensor> leaves;
  ShardPlan plan;
};

// Makes one that lives as long as the function does; the communicator outlives it.
using MakeGpt = std::function<GptAttempt(const GptOptions& options, std::uint64_t seed,
                                         int prefetch, Communicator& comm)>;

// Says what is wrong, a line each, with the value found and the value wanted; nothing if all is
// right. Stops after the first kind of model with a fault. Collective: the same lines on every rank,
// part by part those of the rank that found most. Ranks that do not do the same are a fault like
// any other, not a hang; neither is a parameter a crash that is read while its memory is gone.
std::vector<std::string> grade(const MakeGpt& attempt, Communicator& comm);

}  // namespace ladder::step7
