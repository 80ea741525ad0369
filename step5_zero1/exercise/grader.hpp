// Grades a sharded optimizer: the reference, a learner's, or one that is known to be wrong.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "common/comm/communicator.hpp"
#include "common/optim/flat_model.hpp"
#include "common/optim/optimizer.hpp"
#include "step4_bucketed_ddp/gradient_bucketer.hpp"
#include "step5_zero1/shard_plan.hpp"

namespace ladder::step5 {

// What sharded_optimizer.hpp declares. The tensors are this rank's slice of each unit.
struct ShardedAttempt {
  StartReduction start_reduce_scatter;
  std::function<std::unique_ptr<Optimizer>(
      const ShardPlan& plan, const std::vector<at::Tensor>& params,
      const std::vector<at::Tensor>& grads, const OptimizerOptions& options)>
      make_optimizer;
  std::function<double(const std::vector<at::Tensor>& slices, Communicator& comm)> sharded_norm;
  std::function<void(FlatModel& model, Communicator& comm)> all_gather_parameters;
};

// Says what is wrong, a line each, with the value found and the value wanted; nothing if all is
// right. Collective: the same lines on every rank, part by part those of the rank that found most.
// Ranks that do not do the same are a fault like any other, not a hang.
std::vector<std::string> grade(const ShardedAttempt& attempt, Communicator& comm);

}  // namespace ladder::step5
