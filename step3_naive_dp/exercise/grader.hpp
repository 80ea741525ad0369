// Grades a naive data parallelism: the reference, a learner's, or one that is known to be wrong.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "step3_naive_dp/naive_dp.hpp"

namespace ladder::step3 {

struct NaiveDp {
  std::function<void(FlatModel&, Communicator&, int root)> broadcast_parameters;
  std::function<void(FlatGradients&, Communicator&)> all_reduce_gradients;
};

// Says what is wrong, a line each, with the value found and the value wanted; nothing if all is
// right. Collective: the same lines on every rank, part by part those of the rank that found most.
// Ranks that do not do the same are a fault like any other, not a hang.
std::vector<std::string> grade(const NaiveDp& attempt, Communicator& comm);

}  // namespace ladder::step3
