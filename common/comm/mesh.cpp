#include "common/comm/mesh.hpp"

#include <utility>

#include "common/comm/self_communicator.hpp"
#include "common/core/check.hpp"

namespace ladder {

Mesh::Mesh(Communicator& all_ranks)
    : Mesh(all_ranks, all_ranks, std::make_shared<SelfCommunicator>()) {}

Mesh::Mesh(Communicator& all_ranks, Communicator& data_parallel_group,
           std::shared_ptr<Communicator> stage_group)
    : Mesh(all_ranks, data_parallel_group, *stage_group) {
  own_stages_ = std::move(stage_group);
}

Mesh Mesh::split(Communicator& all_ranks, int num_stages) {
  const int size = all_ranks.size();
  check_usage(num_stages >= 1, "a replica has ", num_stages,
              " stages, it must have at least 1; 1 is no pipeline");
  check_usage(size % num_stages == 0, "a replica has ", num_stages,
              " stages, each on a rank of its own, and that does not divide ", size,
              size == 1 ? " rank" : " ranks", "; start a multiple of ", num_stages,
              " ranks, or choose a number of stages that divides ", size);
  const MeshShape shape = mesh_shape(size, num_stages);
  std::shared_ptr<Communicator> data_parallel =
      all_ranks.split_by([=](int rank) { return shape.stage_of(rank); });
  std::shared_ptr<Communicator> stages =
      all_ranks.split_by([=](int rank) { return shape.replica_of(rank); });
  Mesh mesh(all_ranks, *data_parallel, std::move(stages));
  mesh.own_data_parallel_ = std::move(data_parallel);
  return mesh;
}

void all_reduce_sum(std::span<double> values, const Mesh& mesh, CallSite where) {
  all_reduce_sum(values, mesh.data_parallel, where);
  all_reduce_sum(values, mesh.stages, where);
}

}  // namespace ladder
