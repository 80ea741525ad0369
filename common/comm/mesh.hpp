// Which rank plays which role.
//
// A model may be cut into stages on different ranks (a pipeline), and may have several replicas,
// each training on its own samples. The ranks that hold the same part in different replicas form a
// data-parallel group, which sums gradients. Without a pipeline every rank is a replica, and the
// data-parallel group is the world.
#pragma once

#include "common/comm/communicator.hpp"

namespace ladder {

// Lifetime: the communicators must outlive the mesh.
struct Mesh {
  // Every rank is a replica.
  Mesh(Communicator& all_ranks)
      : world(all_ranks), data_parallel(all_ranks) {}  // NOLINT(*-explicit-*)
  Mesh(Communicator& all_ranks, Communicator& group) : world(all_ranks), data_parallel(group) {}

  int num_replicas() const { return data_parallel.size(); }
  int num_stages() const { return world.size() / data_parallel.size(); }

  Communicator& world;
  Communicator& data_parallel;
};

}  // namespace ladder
