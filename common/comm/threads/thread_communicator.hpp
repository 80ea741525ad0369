// The transport between threads of one process: one rank per thread, bit for bit the sums of the
// mpi transport.
//
//   const auto ranks = ThreadCommunicator::create(3);  // thread r uses ranks[r]
//
// run_as_threads() does that, and starts the threads.
//
// The rank that starts an operation last does the work for all of its ranks, in that call, and
// reads and writes their tensors directly. So
//
//   an operation is done once all of its ranks have started it, whether or not any of them waits;
//   a send is done when its receiver has called recv, and never before; an empty one is done at
//   once, and so is an empty recv;
//   waiting sleeps, and test() advances nothing, because nothing is left to advance.
//
// Bytes never leave the process. traffic() counts what the same calls send on the mpi transport
// (traffic_theory.hpp), so that plans and cost cards can be checked on threads, too.
//
// No rank waits forever for one that will not come; it gets a CheckError that names that rank:
//
//   once a rank has called abort(), from every operation that is not done, and every new one;
//   once a rank has called leave(), from the operations in which that rank was to take part.
//
// Ranks that disagree on the operation, its root, its length or (in a reduction) its dtype all get
// a CheckError, except that a broadcast or a message of another length fails only where it arrives.
//
// Threads: each communicator belongs to one rank, which uses it from one thread at a time; so do
//          the groups split from it.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "common/comm/communicator.hpp"

namespace ladder {

class ThreadGroup;

class ThreadCommunicator final : public Communicator {
 public:
  // A group of this many ranks, in their order: one communicator for each thread.
  static std::vector<std::unique_ptr<ThreadCommunicator>> create(int num_ranks);

  // This rank starts nothing more.
  void leave();
  // This rank has failed, for this reason: no operation is started any more, in this group and all
  // groups that were split from the same one. The first reason is the one that others throw.
  void abort(const std::string& reason);

  int rank() const override { return rank_; }
  int size() const override;
  WorkPtr start(const Operation& operation) override;
  std::unique_ptr<Communicator> split(int color, int key) override;
  Traffic traffic() const override { return *meter_; }

 private:
  ThreadCommunicator(std::shared_ptr<ThreadGroup> group, int rank, std::shared_ptr<Traffic> meter);

  std::shared_ptr<ThreadGroup> group_;  // shared by its ranks
  int rank_;
  std::shared_ptr<Traffic> meter_;  // this rank's, shared by all of its groups
  std::int64_t num_started_ = 0;    // collectives so far: the next one's number
};

}  // namespace ladder
