// Grades a bucketer: the reference, a learner's, or one that is known to be wrong.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "common/comm/communicator.hpp"
#include "common/optim/flat_model.hpp"
#include "step4_bucketed_ddp/bucket_plan.hpp"
#include "step4_bucketed_ddp/gradient_bucketer.hpp"

namespace ladder::step4 {

// What a bucketer can do.
struct BucketerAttempt {
  std::function<void(std::int64_t num_microbatches)> arm;
  std::function<void()> wait;
};

// Makes one that lives as long as the functions do; gradients and communicator outlive it.
using MakeBucketer =
    std::function<BucketerAttempt(FlatGradients& grads, const std::vector<GradientBucket>& plan,
                                  Communicator& comm, const StartReduction& start_reduction)>;

// Says what is wrong, a line each, with the value found and the value wanted; nothing if all is
// right. Stops after the first step if that fails. Installs the memory ledger. Collective: the same
// lines on every rank, part by part those of the rank that found most. Ranks that do not do the
// same are a fault like any other, not a hang.
std::vector<std::string> grade(const MakeBucketer& attempt, Communicator& comm);

}  // namespace ladder::step4
