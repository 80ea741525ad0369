// The places of ranks in a mesh (mesh.hpp), as numbers.
#pragma once

namespace ladder {

// Which place a rank has: nothing else knows the order.
struct MeshShape {
  int num_stages = 1;
  int num_replicas = 1;
  int num_tensor_ranks = 1;
  // Whether tensor ranks also divide the rows of activations between layers.
  bool cuts_rows = false;

  int stage_of(int rank) const { return rank / (num_replicas * num_tensor_ranks); }
  int replica_of(int rank) const { return rank / num_tensor_ranks % num_replicas; }
  int tensor_rank_of(int rank) const { return rank % num_tensor_ranks; }
  int rank_of(int stage, int replica, int tensor_rank = 0) const {
    return (stage * num_replicas + replica) * num_tensor_ranks + tensor_rank;
  }
  int ranks_per_replica() const { return num_stages * num_tensor_ranks; }
};

// ranks_per_replica() must divide num_ranks.
inline MeshShape mesh_shape(int num_ranks, int num_stages, int num_tensor_ranks = 1) {
  return {num_stages, num_ranks / (num_stages * num_tensor_ranks), num_tensor_ranks};
}

}  // namespace ladder
