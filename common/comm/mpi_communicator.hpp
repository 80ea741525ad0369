// The MPI transport, for tensors on the CPU.
//
// The number of elements that rank r of N sends for a tensor of k elements, in chunks of sizes
// k_0 … k_{N−1}, of which the first k mod N are one longer (see also traffic_theory.hpp):
//
//   reduce_scatter  k − k_r        N−1 messages: chunk q to rank q, which folds in rank order
//   all_gather      (N−1) k_r      N−1 messages: its own shard to every other rank
//   all_reduce      k + (N−2) k_r  both, one after the other; on average 2k(N−1)/N, as in a ring
//   broadcast       (N−1) k        N−1 messages from the root, none from other ranks
//   send            k              one message
//   barrier         not counted: MPI's own
//
// Empty messages are not sent; messages longer than MpiLimits::message_bytes count as several. A
// reduction holds (N−1) k_r elements of scratch (category: communication) from its start until its
// fold is done.
//
// Each collective in flight has a tag of its own; send and recv use a separate MPI communicator. A
// message of the wrong length is detected and reported by the rank that receives it.
#pragma once

#include <cstdint>
#include <limits>
#include <memory>

#include "common/comm/communicator.hpp"

namespace ladder {

struct MpiGroup;
class MpiEngine;
class MpiOperation;

// For tests, which set the numbers to small values. Values above MPI's own limits are reduced to
// those.
struct MpiLimits {
  std::int64_t message_bytes = std::int64_t{1} << 30;  // longer messages travel in pieces
  std::int64_t num_tags = std::numeric_limits<int>::max();
  // A send is done only when its receiver has started to receive it (MPI_Issend). Without this MPI
  // may buffer short messages, and hide a cycle of ranks that would wait forever with longer ones.
  bool synchronous_sends = false;
};

class MpiCommunicator final : public Communicator {
 public:
  // The group of all launched ranks. Collective over them. MPI must be running (see World).
  static std::unique_ptr<MpiCommunicator> create(MpiLimits limits = {});

  int rank() const override;
  int size() const override;
  WorkPtr all_reduce(at::Tensor inout) override;
  WorkPtr reduce_scatter(const at::Tensor& full, at::Tensor shard) override;
  WorkPtr all_gather(const at::Tensor& shard, at::Tensor full) override;
  WorkPtr broadcast(at::Tensor inout, int root) override;
  WorkPtr send(const at::Tensor& tensor, int peer, int tag) override;
  WorkPtr recv(at::Tensor tensor, int peer, int tag) override;
  void barrier() override;
  std::unique_ptr<Communicator> split(int color, int key) override;
  Traffic traffic() const override;

 private:
  MpiCommunicator(std::shared_ptr<MpiGroup> group, std::shared_ptr<MpiEngine> engine);
  std::shared_ptr<MpiOperation> new_collective(CommOp op);

  std::shared_ptr<MpiGroup> group_;    // shared with the operations in flight
  std::shared_ptr<MpiEngine> engine_;  // shared by all groups of the World
};

}  // namespace ladder
