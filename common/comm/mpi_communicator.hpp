// The transport over MPI, for tensors on the CPU.
//
// What rank r of N sends, in elements, for a tensor of k elements cut into chunks k_0 … k_{N−1}
// that are equal up to one (the first k mod N are one longer; traffic_theory.hpp counts):
//
//   reduce_scatter  k − k_r        N−1 messages: chunk q goes to rank q, which folds in rank order
//   all_gather      (N−1) k_r      N−1 messages: the own shard goes to every other rank
//   all_reduce      k + (N−2) k_r  both, one after the other; 2k(N−1)/N on average, as a ring sends
//   broadcast       (N−1) k        N−1 messages from the root, none from the others
//   send            k              one message
//   barrier         nothing counted: MPI's own
//
// Empty messages are not sent, longer ones than MpiLimits::message_bytes count as several. A
// reduction holds (N−1) k_r elements of scratch (category: communication) from its start until its
// fold is done.
//
// A tag for every collective in flight keeps them apart; send and recv travel on a communicator of
// their own. Messages of a wrong length are found and reported by the rank that receives them.
#pragma once

#include <cstdint>
#include <limits>
#include <memory>

#include "common/comm/communicator.hpp"

namespace ladder {

struct MpiGroup;
class MpiEngine;
class MpiOperation;

// For tests, which make them small. What MPI itself cannot do is cut down to what it can.
struct MpiLimits {
  std::int64_t message_bytes = std::int64_t{1} << 30;  // longer messages travel in pieces
  std::int64_t num_tags = std::numeric_limits<int>::max();
};

class MpiCommunicator final : public Communicator {
 public:
  // All ranks that the launcher started. Collective over them; MPI has been started (see World).
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
