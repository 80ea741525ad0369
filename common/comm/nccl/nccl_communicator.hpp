// The NCCL transport, for tensors on GPUs: each rank has a GPU of its own.
//
// A call makes one of this World's two communication streams wait for what the caller's stream has
// been given so far, starts the operation there, and returns. wait() makes the current stream wait
// for the result; test() asks whether it is there. The host itself waits for nothing, so the next
// kernels are queued while messages travel.
//
// All groups of a World share these streams: one for collectives, one for messages. NCCL's kernels
// wait for the other ranks' kernels; if groups had streams of their own, two ranks could start the
// operations of two groups in different orders, and each would occupy its GPU with the one that the
// other has not started.
//
// Messages, that is send and recv, travel from GPU to GPU in groups whose ranks have promised an
// order (promise_message_order()), as the stages of a pipeline do. NCCL's send keeps its stream
// until the receiver comes, with every message that is queued behind it; in that order somebody
// always comes. Replicas add up their gradients on the other stream meanwhile, so at most two
// kernels of NCCL are on a GPU at a time. Operations of one group, on whichever stream, NCCL carries
// out in the order of their calls. Messages of other groups need no common order, and pass through
// the host.
//
// The order of sums:
//   kNative   NCCL's, which depends on the number of ranks and on how the GPUs are connected: the
//             fastest, and every rank gets the same bits, but not those of the other transports.
//   kOrdered  a tree, as everywhere else (tree_sum.hpp): every rank sends slice q to rank q, which
//             folds them with a kernel. (N−1) k_r elements of scratch, category communication.
//
// Traffic: kOrdered counts what it sends, as the mpi transport does (message_communicator.hpp).
// What NCCL sends for a native collective it does not tell; the same formulas are counted for it.
//
// Everything else goes through `control`, the group over which this one was created: tensors on the
// CPU, and messages without a promise, which are staged through host memory.
//
// Errors: threads watch NCCL and the time that operations take on the GPU. If NCCL reports an
//         error, or an operation takes longer than the time-out, it says so, naming rank and
//         operation, and ends the process, and the launcher ends the others: a kernel that waits
//         cannot be called back.
#pragma once

#include <memory>
#include <string>

#include "common/comm/forwarding_communicator.hpp"
#include "common/comm/nccl/nccl_options.hpp"

namespace ladder {

// The version of the NCCL library that this process has loaded, for example "2.28.9".
std::string nccl_version();

class NcclCommunicator final : public ForwardingCommunicator {
 public:
  // The group of control's ranks, on the current device of each. Collective over control, which
  // carries NCCL's id. Throws UsageError if two ranks have the same GPU, and CheckError if NCCL's
  // library is another version than the one that this program was built with.
  static std::unique_ptr<NcclCommunicator> create(std::unique_ptr<Communicator> control,
                                                  const NcclOptions& options = {});
  ~NcclCommunicator() override;

  WorkPtr start(const Operation& operation) override;  // a barrier waits for the GPU as well
  std::unique_ptr<Communicator> split(int color, int key) override;
  void promise_message_order() override { has_message_order_ = true; }
  Traffic traffic() const override;
  bool runs_in_order(const at::Tensor& tensor) const override { return tensor.is_cuda(); }

 private:
  struct Group;    // NCCL's communicator
  struct Streams;  // what all groups of a World share: streams, meter, options
  class NcclWork;
  NcclCommunicator(std::unique_ptr<Communicator> control, std::shared_ptr<Streams> streams);

  template <class Launch>
  WorkPtr queue(const Operation& operation, const at::Tensor& scratch, Launch launch);

  std::shared_ptr<Streams> streams_;
  std::shared_ptr<Group> group_;  // shared with the operations in flight
  bool has_message_order_ = false;
};

}  // namespace ladder
