// Which rank plays which role.
//
// A model may be cut into stages on different ranks (a pipeline); each of its layers may be cut into
// parts on different ranks (tensor parallelism); and it may have several replicas, each training on
// its own samples. So a rank has a place on three axes, and along each of them a group of ranks that
// differ in nothing else:
//
//   stages           all stages, in their order; activations travel through it
//   data_parallel    all replicas, in their order; it sums gradients
//   tensor_parallel  the owners of a layer's parts, in their order; it sums partial products
//
// Machines are filled with ranks in their order, and links inside a machine are faster than those
// between machines. What an axis sends decides how far apart its ranks are: partial products are
// sums of activations that a rank waits for in each layer, so tensor ranks are neighbors; gradients
// are many more bytes than the activations between stages, so replicas come next, and stages are far
// apart: rank = (pp_rank · num_replicas + dp_rank) · num_tensor_ranks + tp_rank. Megatron-LM and
// torchtitan have the same order. Eight ranks, two on each axis:
//
//            replica 0           replica 1
//   stage 0    rank 0, rank 1      rank 2, rank 3     tensor_parallel: {0, 1}, {2, 3}, {4, 5}, {6, 7}
//   stage 1    rank 4, rank 5      rank 6, rank 7     data_parallel:   {0, 2}, {1, 3}, {4, 6}, {5, 7}
//                                                     stages:          {0, 4}, {1, 5}, {2, 6}, {3, 7}
//
// All ranks that hold one replica together are its model_parallel group: {0, 1, 4, 5}, {2, 3, 6, 7}.
// An axis of one rank cuts nothing.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "common/comm/communicator.hpp"
#include "common/comm/mesh_shape.hpp"

namespace ladder {

// Lifetime: the communicator that was passed in must outlive the mesh and its copies. The groups
//           belong to it, and to its copies, which share them.
struct Mesh {
  // Every rank is a replica: the data-parallel group is the world itself, and the others are groups
  // of one with a meter of their own. Local.
  Mesh(Communicator& all_ranks);  // NOLINT(*-explicit-*)

  // Collective: splits the world into the groups of this many stages and tensor ranks. Their traffic
  // is part of the world's. Throws UsageError, on every rank and before anything is sent, unless
  // their product divides the number of ranks.
  static Mesh split(Communicator& all_ranks, int num_stages, int num_tensor_ranks = 1);

  int num_replicas() const { return data_parallel.size(); }
  int num_stages() const { return stages.size(); }
  int num_tensor_ranks() const { return tensor_parallel.size(); }
  int dp_rank() const { return data_parallel.rank(); }    // this rank's replica
  int pp_rank() const { return stages.rank(); }           // this rank's stage
  int tp_rank() const { return tensor_parallel.rank(); }  // which owner of parts this rank is

  Communicator& world;
  Communicator& data_parallel;
  Communicator& stages;
  Communicator& tensor_parallel;
  Communicator& model_parallel;  // rank pp_rank · num_tensor_ranks + tp_rank

 private:
  using Group = std::shared_ptr<Communicator>;
  Mesh(Communicator& all_ranks, Communicator& replicas, Group stage_group, Group tensor_group,
       Group model_group);

  std::vector<Group> own_;
};

// Sums over all ranks, of which in each replica only one has a value: over the replicas, then over
// the ranks of each. Bit for bit the sum of as many ranks with whole models, whose tree has no place
// for the zeros of other stages and tensor ranks. Collective, blocking.
void all_reduce_sum(std::span<double> values, const Mesh& mesh,
                    CallSite where = CallSite::current());

}  // namespace ladder
