// Which rank plays which role.
//
// A model may be cut into stages on different ranks (a pipeline), and may have several replicas,
// each training on its own samples. Two groups contain this rank:
//
//   data_parallel  the same stage of all replicas, in the order of the replicas; it sums gradients
//   stages         all stages of this replica, in their order; activations travel through it
//
// Machines are filled with ranks in their order, and links inside a machine are faster than those
// between machines. Gradients are many more bytes than activations, so replicas are neighbors, and
// stages are far apart: rank = pp_rank · num_replicas + dp_rank. Megatron-LM and torchtitan have the
// same order. Four ranks and two stages:
//
//            replica 0  replica 1
//   stage 0    rank 0     rank 1    data_parallel: {0, 1} and {2, 3}
//   stage 1    rank 2     rank 3    stages: {0, 2} and {1, 3}
//
// Without a pipeline every rank is a replica of one stage.
#pragma once

#include <memory>
#include <span>

#include "common/comm/communicator.hpp"

namespace ladder {

// Which place a rank has: nothing else knows the order.
struct MeshShape {
  int num_stages = 1;
  int num_replicas = 1;

  int stage_of(int rank) const { return rank / num_replicas; }
  int replica_of(int rank) const { return rank % num_replicas; }
  int rank_of(int stage, int replica) const { return stage * num_replicas + replica; }
};

// num_stages must divide num_ranks.
inline MeshShape mesh_shape(int num_ranks, int num_stages) {
  return {num_stages, num_ranks / num_stages};
}

// Lifetime: the communicators that were passed in must outlive the mesh and its copies. The groups
//           made by split() belong to it, and to its copies, which share them.
struct Mesh {
  // Every rank is a replica: the data-parallel group is the world itself, and `stages` a group of
  // one with a meter of its own. Local.
  Mesh(Communicator& all_ranks);  // NOLINT(*-explicit-*)
  // The groups are as above. Local.
  Mesh(Communicator& all_ranks, Communicator& data_parallel_group, Communicator& stage_group)
      : world(all_ranks), data_parallel(data_parallel_group), stages(stage_group) {}

  // Collective: splits the world into the groups of this many stages. Their traffic is part of the
  // world's. Throws UsageError, on every rank and before anything is sent, unless num_stages divides
  // the number of ranks.
  static Mesh split(Communicator& all_ranks, int num_stages);

  int num_replicas() const { return data_parallel.size(); }
  int num_stages() const { return stages.size(); }
  int dp_rank() const { return data_parallel.rank(); }  // this rank's replica
  int pp_rank() const { return stages.rank(); }         // this rank's stage

  Communicator& world;
  Communicator& data_parallel;
  Communicator& stages;

 private:
  Mesh(Communicator& all_ranks, Communicator& data_parallel_group,
       std::shared_ptr<Communicator> stage_group);

  std::shared_ptr<Communicator> own_data_parallel_;  // null: the mesh does not own the group
  std::shared_ptr<Communicator> own_stages_;
};

// Sums over all ranks, of which only those of one stage have a value: over its replicas, then over
// the stages. Bit for bit the sum of as many ranks without a pipeline, whose tree has no place for
// the zeros of other stages. Collective, blocking.
void all_reduce_sum(std::span<double> values, const Mesh& mesh,
                    CallSite where = CallSite::current());

}  // namespace ladder
