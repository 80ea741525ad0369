// Who owns what: rank r owns slice r of every unit.
//
//   flat buffer     | embedding                     | block0                        | …
//                   | rank 0 | rank 1 | rank 2 | …  | rank 0 | rank 1 | rank 2 | …  |
//   shard of rank 1          | 1·of embedding | 1·of block0 | …                          [numel]
//
// Slices, not tensors: whole tensors dealt out to the ranks would give one of them the token embedding
// and another a bias. A layout made with shard_multiple() pads each unit so that its N slices are
// equally long and made of whole norm blocks. All ranks then hold, send and compute the same.
//
// A plan is a value; it depends on the layout, the number of ranks and the rank alone.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "common/comm/traffic.hpp"
#include "common/optim/flat_layout.hpp"
#include "common/optim/optimizer.hpp"
#include "step4_bucketed_ddp/bucket_plan.hpp"

namespace ladder {

// What FlatModel has to pad its units to: N slices of whole blocks of 1024 elements.
std::int64_t shard_multiple(int world_size);

// This rank's slice of one unit.
struct UnitSlice {
  std::int64_t start = 0;        // in the flat buffer of the whole model, in elements
  std::int64_t shard_start = 0;  // in a buffer that holds this rank's slices only
  std::int64_t numel = 0;
};

struct ShardPlan {
  FlatLayout layout;
  int world_size = 1;
  int rank = 0;
  std::vector<UnitSlice> slices;  // by unit
  std::int64_t numel = 0;         // of all slices: layout.numel / world_size

  // This rank's slice of each unit, as views of a buffer of the whole model [layout.numel] …
  std::vector<at::Tensor> slices_of_full(const at::Tensor& full) const;
  // … or of a shard [numel].
  std::vector<at::Tensor> slices_of_shard(const at::Tensor& shard) const;
};

// Throws CheckError naming a unit that does not divide into world_size slices of whole blocks.
ShardPlan plan_shards(const FlatLayout& layout, int world_size, int rank);

// One bucket for each unit with something to train, from the last to the first: what is reduced, and
// gathered, in one piece.
std::vector<GradientBucket> plan_unit_buckets(const FlatLayout& layout);

// What this rank's optimizer updates: plan_updates(), as far as it lies in its own slices. `params`
// and `grads` are this rank's slices of each unit.
std::vector<OptimizerSlice> plan_own_updates(const ShardPlan& plan,
                                             const std::vector<at::Tensor>& params,
                                             const std::vector<at::Tensor>& grads);

// Theory: the all_gather of sharded_norm(), a double for each block of 1024 elements.
Traffic norm_traffic(const FlatLayout& layout, int world_size, int rank);

}  // namespace ladder
