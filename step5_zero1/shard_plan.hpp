// Which rank owns what: rank r owns slice r of every unit.
//
//   flat buffer     | embedding                     | block0                        | …
//                   | rank 0 | rank 1 | rank 2 | …  | rank 0 | rank 1 | rank 2 | …  |
//   shard of rank 1          | 1·of embedding | 1·of block0 | …                          [numel]
//
// The plan deals out slices, not whole tensors: otherwise one rank might get the token embedding
// and another a bias. A layout made with shard_multiple() pads each unit so that its N slices are
// equally long and consist of whole norm blocks. Then all ranks hold, send and compute the same.
//
// A plan is a value; it depends only on the layout, the number of ranks and the rank.
#pragma once

#include <cstdint>
#include <vector>

#include "common/optim/flat_layout.hpp"
#include "step4_bucketed_ddp/bucket_plan.hpp"

namespace at {
class Tensor;
}

namespace ladder {

struct OptimizerSlice;  // optimizer.hpp

// The multiple to which a layout must pad its units: N slices of whole blocks of 1024 elements.
std::int64_t shard_multiple(int world_size);

// This rank's slice of one unit.
struct UnitSlice {
  std::int64_t start = 0;        // in the flat buffer of the whole model, in elements
  std::int64_t shard_start = 0;  // in a buffer that holds only this rank's slices
  std::int64_t numel = 0;
};

struct ShardPlan {
  FlatLayout layout;
  int world_size = 1;
  int rank = 0;
  std::vector<UnitSlice> slices;  // by unit
  std::int64_t numel = 0;         // of all slices together: layout.numel / world_size

  // This rank's slice of each unit, as views of a buffer of the whole model [layout.numel] …
  std::vector<at::Tensor> slices_of_full(const at::Tensor& full) const;
  // … or of a shard [numel].
  std::vector<at::Tensor> slices_of_shard(const at::Tensor& shard) const;
};

// Throws CheckError naming a unit that does not divide into world_size slices of whole blocks.
ShardPlan plan_shards(const FlatLayout& layout, int world_size, int rank);

// Whether an optimizer updates a part of the unit. If not, nothing of it is ever sent.
bool has_trainable(const FlatLayout& layout, const FlatUnit& unit);

// One bucket for each unit that has a trainable tensor, from last to first. A bucket is reduced in
// one operation.
std::vector<GradientBucket> plan_unit_buckets(const FlatLayout& layout);

// What this rank's optimizer updates: the part of plan_updates() that lies in its own slices.
// `params` and `grads` are this rank's slices of each unit.
std::vector<OptimizerSlice> plan_own_updates(const ShardPlan& plan,
                                             const std::vector<at::Tensor>& params,
                                             const std::vector<at::Tensor>& grads);

}  // namespace ladder
