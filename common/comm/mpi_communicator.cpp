#include "common/comm/mpi_communicator.hpp"

#include <mpi.h>

#include <utility>

#include "common/comm/argument_checks.hpp"
#include "common/comm/mpi_engine.hpp"
#include "common/comm/mpi_group.hpp"
#include "common/comm/mpi_operation.hpp"

namespace ladder {

std::unique_ptr<MpiCommunicator> MpiCommunicator::create(MpiLimits limits) {
  MPI_Comm all = MPI_COMM_NULL;
  check_mpi(MPI_Comm_dup(MPI_COMM_WORLD, &all), "MPI_Comm_dup");
  return std::unique_ptr<MpiCommunicator>(new MpiCommunicator(
      make_mpi_group(all, limits, std::make_shared<Traffic>()), std::make_shared<MpiEngine>()));
}

MpiCommunicator::MpiCommunicator(std::shared_ptr<MpiGroup> group, std::shared_ptr<MpiEngine> engine)
    : group_(std::move(group)), engine_(std::move(engine)) {}

int MpiCommunicator::rank() const {
  return group_->rank;
}
int MpiCommunicator::size() const {
  return group_->size;
}
Traffic MpiCommunicator::traffic() const {
  return *group_->meter;
}

std::shared_ptr<MpiOperation> MpiCommunicator::new_collective(CommOp op) {
  engine_->wait_for_free_tag(*group_);
  return std::make_shared<MpiOperation>(group_, op);
}

WorkPtr MpiCommunicator::all_reduce(at::Tensor inout) {
  check_reducible(*this, CommOp::kAllReduce, inout);
  auto operation = new_collective(CommOp::kAllReduce);
  operation->start_all_reduce(inout);
  return engine_->start(std::move(operation));
}

WorkPtr MpiCommunicator::reduce_scatter(const at::Tensor& full, at::Tensor shard) {
  check_reducible(*this, CommOp::kReduceScatter, full);
  check_shards(*this, CommOp::kReduceScatter, full, shard);
  auto operation = new_collective(CommOp::kReduceScatter);
  operation->start_reduce_scatter(full, shard);
  return engine_->start(std::move(operation));
}

WorkPtr MpiCommunicator::all_gather(const at::Tensor& shard, at::Tensor full) {
  check_shards(*this, CommOp::kAllGather, full, shard);
  auto operation = new_collective(CommOp::kAllGather);
  operation->start_all_gather(shard, full);
  return engine_->start(std::move(operation));
}

WorkPtr MpiCommunicator::broadcast(at::Tensor inout, int root) {
  check_movable(*this, CommOp::kBroadcast, inout);
  check_root(*this, CommOp::kBroadcast, root);
  auto operation = new_collective(CommOp::kBroadcast);
  operation->start_broadcast(inout, root);
  return engine_->start(std::move(operation));
}

WorkPtr MpiCommunicator::send(const at::Tensor& tensor, int peer, int tag) {
  check_movable(*this, CommOp::kSend, tensor);
  check_peer(*this, CommOp::kSend, peer);
  check_tag(*this, CommOp::kSend, tag, group_->limits.num_tags);
  auto operation = std::make_shared<MpiOperation>(group_, CommOp::kSend);
  operation->start_send(tensor, peer, tag);
  return engine_->start(std::move(operation));
}

WorkPtr MpiCommunicator::recv(at::Tensor tensor, int peer, int tag) {
  check_movable(*this, CommOp::kRecv, tensor);
  check_peer(*this, CommOp::kRecv, peer);
  check_tag(*this, CommOp::kRecv, tag, group_->limits.num_tags);
  auto operation = std::make_shared<MpiOperation>(group_, CommOp::kRecv);
  operation->start_recv(tensor, peer, tag);
  return engine_->start(std::move(operation));
}

void MpiCommunicator::barrier() {
  auto operation = std::make_shared<MpiOperation>(group_, CommOp::kBarrier);
  operation->start_barrier();
  engine_->start(std::move(operation))->wait();
}

std::unique_ptr<Communicator> MpiCommunicator::split(int color, int key) {
  // MPI_Comm_split blocks without advancing our operations. So all ranks first meet in this
  // barrier, which does advance them.
  engine_->start(MpiOperation::uncounted_barrier(group_))->wait();
  MPI_Comm part = MPI_COMM_NULL;
  check_mpi(MPI_Comm_split(group_->collectives, color < 0 ? MPI_UNDEFINED : color, key, &part),
            "MPI_Comm_split");
  if (part == MPI_COMM_NULL) return nullptr;
  return std::unique_ptr<Communicator>(
      new MpiCommunicator(make_mpi_group(part, group_->limits, group_->meter), engine_));
}

}  // namespace ladder
