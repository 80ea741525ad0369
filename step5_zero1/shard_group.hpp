// Hybrid sharding: the state is cut over some neighboring ranks, and there are several copies of it.
//
//   --shard-ranks 2, on 6 ranks   copy 0   copy 1   copy 2
//     slice 0 of each unit        rank 0   rank 2   rank 4     shard groups {0, 1}, {2, 3}, {4, 5}
//     slice 1                     rank 1   rank 3   rank 5     across copies {0, 2, 4}, {1, 3, 5}
//
// For a sharded trainer this is the communicator of the ranks that share a copy with this one: they
// gather parameters and norms among themselves. Only a sum is about all ranks, so a reduce_scatter
// has two phases:
//
//   within   a reduce_scatter of the shard group: the sum over its ranks, of this rank's slice
//   across   an all_reduce of that slice over the copies: the sum over all ranks
//
// The second phase starts once the first one is done, and in the order in which the first ones were
// started, because that is the same on all ranks; which of them is done first is not. Each test()
// and wait() on a Work of this group starts what can start. Where operations are carried out in the
// order of their start, as on the stream of a GPU, the second phase is queued right behind the first:
// a rank that waited for it could queue others in between, and ranks would wait in a circle.
//
// Sums are those of a tree over each shard group, and then over the copies. If a group has a power
// of two ranks, that is the tree of all ranks, bit for bit (tree_sum.hpp).
//
// With one copy, this passes everything on to the communicator of all ranks.
//
// Collective: the constructor, unless there is one copy; all else as Communicator, over this rank's
//             shard group, but a reduce_scatter, which is over all ranks.
// Lifetime:   `all_ranks` outlives this, and this the Works that it returns.
#pragma once

#include <memory>

#include "common/comm/forwarding_communicator.hpp"
#include "step5_zero1/shard_options.hpp"

namespace ladder {

class ShardGroup final : public ForwardingCommunicator {
 public:
  // The ranks that share a copy; they divide all ranks.
  ShardGroup(Communicator& all_ranks, int num_ranks);
  ~ShardGroup() override;

  int copy() const { return copy_; }  // which one this rank has a slice of
  WorkPtr start(const Operation& operation) override;

 private:
  struct State;  // what it knows of its sums, and what it does with them: shard_group.cpp

  int copy_;
  std::unique_ptr<State> state_;  // null: there is one copy
};

}  // namespace ladder
