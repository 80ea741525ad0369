// A communicator whose collectives are composed of messages from rank to rank, for tensors on the
// CPU: all of a transport between processes or threads but its messages (message_group.hpp).
//
// The number of elements that rank r of N sends for a tensor of k elements, in slices of sizes
// k_0 … k_{N−1}, of which the first k mod N are one longer (see also traffic_theory.hpp):
//
//   reduce_scatter  k − k_r        N−1 messages: slice q to rank q, which folds them
//   all_gather      (N−1) k_r      N−1 messages: its own shard to every other rank
//   all_reduce      k + (N−2) k_r  both, one after the other; on average 2k(N−1)/N, as in a ring
//   broadcast       (N−1) k        N−1 messages from the root, none from other ranks
//   send            k              one message
//   barrier, split  not counted
//
// Empty messages are not sent; messages longer than kLongestMessageBytes count as several. A
// reduction holds (N−1) k_r elements of scratch (category: communication) from its start until its
// fold is done.
//
// On M machines with L ranks each (machines.hpp), ranks send as many messages, and as many bytes if
// N divides k. But only 1/L of what would leave the machine does: of a reduce_scatter, (M−1) k/N
// elements instead of (M−1) k/M. That takes two rounds, here and outside, instead of one.
#pragma once

#include <memory>

#include "common/comm/communicator.hpp"
#include "common/comm/messages/message_group.hpp"

namespace ladder {

class OperationEngine;

// Says where the ranks of a group are, before its first collective; the groups split from it know,
// too. All ranks say the same. Local. Throws CheckError if the group does not send messages.
void place_on(const Machines& machines, Communicator& comm);

class MessageCommunicator final : public Communicator {
 public:
  explicit MessageCommunicator(std::shared_ptr<MessageGroup> group);  // of all ranks

  int rank() const override { return group_->rank; }
  int size() const override { return group_->size; }
  WorkPtr start(const Operation& operation) override;
  std::unique_ptr<Communicator> split(int color, int key) override;
  Traffic traffic() const override { return *group_->meter; }
  Machines machines() const override { return group_->machines; }

 private:
  friend void place_on(const Machines& machines, Communicator& comm);
  MessageCommunicator(std::shared_ptr<MessageGroup> group, std::shared_ptr<OperationEngine> engine);

  std::shared_ptr<MessageGroup> group_;      // shared with the operations in flight
  std::shared_ptr<OperationEngine> engine_;  // shared by this rank's groups
};

}  // namespace ladder
