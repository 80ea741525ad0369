// Grades a sharder: the reference, a learner's, or one that is known to be wrong.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "common/comm/communicator.hpp"
#include "common/core/unit.hpp"
#include "step5_zero1/shard_plan.hpp"

namespace ladder::step6 {

// What a sharder can do.
struct SharderAttempt {
  std::function<void(std::int64_t num_microbatches)> arm;
  std::function<void()> wait;
  at::Tensor grad_shard;  // [plan.numel]
};

// Makes one that lives as long as the functions do; leaves and communicator outlive it.
using MakeSharder = std::function<SharderAttempt(
    const ShardPlan& plan, const std::vector<NamedTensor>& leaves, Communicator& comm)>;

// Says what is wrong, a line each, with the value found and the value wanted; nothing if all is
// right. Installs the memory ledger. Collective: the same lines on every rank, part by part those
// of the rank that found most. Ranks that do not do the same are a fault like any other, not a
// hang.
std::vector<std::string> grade(const MakeSharder& attempt, Communicator& comm);

}  // namespace ladder::step6
