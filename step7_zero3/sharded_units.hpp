// ZeRO-3's memory: a unit's parameters come and go, and the model does not notice.
//
//   unshard(u)   a unit's parameters are whole: memory for them is allocated, and filled by an
//                all_gather of the ranks' slices
//   reshard(u)   the memory is given back; each rank keeps its slice
//
// The model's own tensors are views of one storage per unit. A storage is a handle: reshard() takes
// its memory away, unshard() puts other memory in, of the same size and alignment. Whoever holds the
// storage sees the new memory, the tensors that autograd has saved for backward as well. So nothing
// is computed twice, and backward is exact, as long as a unit is whole when its backward runs
// (ShardedModel's concern).
//
// Collective: start_unshard() and unshard(), in the same order on all ranks. The rest is local.
// Lifetime:   `comm` outlives this. The model's tensors keep their storages alive.
// Memory:     4 bytes per element of the plan's slices; and of each unit that is whole.
#pragma once

#include <c10/core/Storage.h>

#include <cstdint>
#include <vector>

#include "common/comm/communicator.hpp"
#include "common/core/unit.hpp"
#include "step5_zero1/shard_plan.hpp"

namespace ladder {

class ShardedUnits {
 public:
  // Knows where everything will lie; add() brings the units.
  ShardedUnits(const ShardPlan& plan, Communicator& comm);
  ~ShardedUnits() = default;
  ShardedUnits(const ShardedUnits&) = delete;
  ShardedUnits& operator=(const ShardedUnits&) = delete;

  // Takes over the tensors of the next unit: keeps the own slice of their values, makes each a view of
  // the unit's storage, and reshards it. Throws CheckError naming a tensor that is not fp32, or a unit
  // that the plan does not expect.
  void add(const Unit& unit);

  void start_unshard(
      std::size_t unit);           // its gather is on its way; nothing happens if it is, or whole
  void unshard(std::size_t unit);  // it is whole; starts the gather if nobody has
  void reshard(std::size_t unit);  // nothing happens if its memory is gone already
  void reshard_all();

  std::size_t num_units() const { return units_.size(); }
  const at::Tensor& param_shard() const { return param_shard_; }      // [plan.numel]
  const std::vector<NamedTensor>& leaves() const { return leaves_; }  // in the layout's order

 private:
  struct ShardedUnit {
    at::Tensor full;  // [numel], over the storage that comes and goes
    WorkPtr gather;   // while it is on its way
    bool has_memory = false;
  };

  ShardPlan plan_;
  Communicator& comm_;
  at::Tensor param_shard_;
  std::vector<at::Tensor> slices_;  // of param_shard_, by unit
  std::vector<ShardedUnit> units_;
  std::vector<NamedTensor> leaves_;
};

}  // namespace ladder
