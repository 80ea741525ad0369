// ZeRO-3's memory: a unit's parameters come and go, and the model does not notice.
//
//   unshard(u)   makes a unit's parameters whole: allocates memory for them and fills it by an
//                all_gather of the ranks' slices
//   reshard(u)   frees the memory; each rank keeps its slice
//
// The model's own tensors are views of one storage per unit. A storage is a handle: reshard() takes
// its memory away and sets its size to 0, unshard() gives it as much again, aligned the same. Every
// tensor on that storage then sees the new memory, including those that autograd has saved for
// backward. So nothing is computed twice, and backward is exact as long as a unit is whole when its
// backward runs; ShardedModel sees to that.
//
// Collective: start_unshard() and unshard(), in the same order on all ranks. The rest is local.
// Lifetime:   `comm` outlives this. The model's tensors keep their storages alive.
// Memory:     a parameter per element of the plan's slices, and per element of each unit that is whole.
#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include "common/comm/communicator.hpp"
#include "common/core/unit.hpp"
#include "step5_zero1/shard_plan.hpp"

namespace ladder {

class ShardedUnits {
 public:
  // Allocates the shard; add() then brings the units.
  ShardedUnits(const ShardPlan& plan, Communicator& comm);
  ~ShardedUnits();

  // Takes over the tensors of the next unit: keeps this rank's slice of their values, makes each a
  // view of the unit's storage, and reshards the unit. Throws CheckError naming a tensor of
  // another type than the plan's, or a unit that the plan does not expect.
  void add(const Unit& unit);

  void start_unshard(std::size_t unit);  // starts its gather; no effect if it is in flight or whole
  void unshard(std::size_t unit);  // makes it whole; starts the gather if needed, and waits for it
  void reshard(std::size_t unit);  // frees its memory; no effect if it has none
  void reshard_all();

  const at::Tensor& param_shard() const;           // [plan.numel]
  const std::vector<NamedTensor>& leaves() const;  // in the layout's order

 private:
  struct State;  // what it knows, and what it does with it: sharded_units.cpp
  std::unique_ptr<State> state_;
};

}  // namespace ladder
