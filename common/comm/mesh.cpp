#include "common/comm/mesh.hpp"

#include <utility>

#include "common/comm/self_communicator.hpp"
#include "common/core/check.hpp"

namespace ladder {

Mesh::Mesh(Communicator& all_ranks)
    : Mesh(all_ranks, all_ranks, std::make_shared<SelfCommunicator>(),
           std::make_shared<SelfCommunicator>(), std::make_shared<SelfCommunicator>()) {}

Mesh::Mesh(Communicator& all_ranks, Communicator& replicas, Group stage_group, Group tensor_group,
           Group model_group)
    : world(all_ranks),
      data_parallel(replicas),
      stages(*stage_group),
      tensor_parallel(*tensor_group),
      model_parallel(*model_group),
      own_{std::move(stage_group), std::move(tensor_group), std::move(model_group)} {}

Mesh Mesh::split(Communicator& all_ranks, int num_stages, int num_tensor_ranks) {
  const int size = all_ranks.size();
  check_usage(num_stages >= 1, "a replica has ", num_stages,
              " stages, it must have at least 1; 1 is no pipeline");
  check_usage(num_tensor_ranks >= 1, "a stage has ", num_tensor_ranks,
              " tensor ranks, it must have at least 1, which has whole layers");
  const int per_replica = num_stages * num_tensor_ranks;
  check_usage(size % per_replica == 0, "a replica has ", num_stages, " stages",
              num_tensor_ranks > 1 ? concat(" of ", num_tensor_ranks, " tensor ranks") : "",
              ", each on a rank of its own, and that does not divide ", size,
              size == 1 ? " rank" : " ranks", "; start a multiple of ", per_replica,
              " ranks, or choose a number of stages that divides ", size);
  const MeshShape shape = mesh_shape(size, num_stages, num_tensor_ranks);
  // Groups of ranks that have the same place but for one axis.
  Group data_parallel = all_ranks.split_by([=](int rank) {
    return shape.stage_of(rank) * num_tensor_ranks + shape.tensor_rank_of(rank);
  });
  Group stages = all_ranks.split_by([=](int rank) {
    return shape.replica_of(rank) * num_tensor_ranks + shape.tensor_rank_of(rank);
  });
  Group tensor_parallel = std::make_shared<SelfCommunicator>(), model_parallel = stages;
  if (num_tensor_ranks > 1) {
    tensor_parallel = all_ranks.split_by([=](int rank) { return rank / num_tensor_ranks; });
    model_parallel = all_ranks.split_by([=](int rank) { return shape.replica_of(rank); });
  }
  Mesh mesh(all_ranks, *data_parallel, std::move(stages), std::move(tensor_parallel),
            std::move(model_parallel));
  mesh.own_.push_back(std::move(data_parallel));
  return mesh;
}

void all_reduce_sum(std::span<double> values, const Mesh& mesh, CallSite where) {
  all_reduce_sum(values, mesh.data_parallel, where);
  all_reduce_sum(values, mesh.model_parallel, where);
}

}  // namespace ladder
