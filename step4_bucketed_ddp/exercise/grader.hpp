// Grades a bucketer: the reference, a learner's, or one that is known to be wrong.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "common/comm/communicator.hpp"
#include "common/optim/flat_model.hpp"
#include "step4_bucketed_ddp/bucket_plan.hpp"

namespace ladder::step4 {

// What a bucketer can do. `keep` holds the object itself, if it is one.
struct BucketerAttempt {
  std::function<void(std::int64_t num_microbatches)> arm;
  std::function<void()> wait;
  std::shared_ptr<void> keep = {};
};
using MakeBucketer = std::function<BucketerAttempt(
    FlatModel& model, const std::vector<GradientBucket>& plan, Communicator& comm)>;

// Says what is wrong, a line each, with the value found and the value wanted; nothing if all is
// right. Collective: every rank calls it, and gets the faults that it saw itself.
std::vector<std::string> grade(const MakeBucketer& attempt, Communicator& comm);

}  // namespace ladder::step4
