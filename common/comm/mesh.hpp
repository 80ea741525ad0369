// Which rank does what.
//
// A model may be cut into stages that lie on different ranks (a pipeline), and there may be several
// replicas of it, each training on its own samples. The ranks that hold the same part in different
// replicas are a data-parallel group: they sum gradients. Without a pipeline every rank is a replica,
// and the data-parallel group is the world.
#pragma once

#include "common/comm/communicator.hpp"

namespace ladder {

// Lifetime: the communicators outlive this.
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
