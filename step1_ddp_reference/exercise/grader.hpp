// Grades a ReferenceDdp: the reference, a learner's, or one that is known to be wrong.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "common/comm/communicator.hpp"
#include "common/optim/flat_model.hpp"
#include "step0_single_gpu/accumulate_gradients.hpp"

namespace ladder::step1 {

// What a ReferenceDdp can do.
struct Ddp {
  std::function<void()> broadcast_parameters;
  std::function<LossSum(LossSum)> wrap;
  std::function<void(std::int64_t)> arm;
  std::function<void()> wait;
};

// Makes one that lives as long as the functions do; model and communicator outlive it.
using MakeDdp = std::function<Ddp(FlatModel&, Communicator&)>;

// Says what is wrong, a line each, with the value found and the value wanted; nothing if all is
// right. Collective: the same lines on every rank, part by part those of the rank that found most.
// Ranks that do not do the same are a fault like any other, not a hang.
std::vector<std::string> grade(const MakeDdp& make, Communicator& comm);

}  // namespace ladder::step1
