// Carries tensors on a GPU through a communicator that only knows the CPU's memory.
//
// A call copies what this rank sends into pinned host memory, waits for that copy, and starts the
// inner operation on it. wait(), or the test() that finds it done, copies the result to the GPU, in
// the order of the current stream.
// Tensors on the CPU go to the inner communicator as they are.
//
// So several ranks can share one GPU, which NCCL refuses, and the sums are the inner
// communicator's: folded as a tree, with the same bits as on the CPU. The price: every byte
// crosses the bus to the GPU twice, and since a call waits for the GPU to compute what is sent,
// nothing overlaps.
//
// Memory: on the host, category communication, as long as the Work lives: `full` for reduce_scatter
//         and all_gather, otherwise the tensor. None on the GPU.
#pragma once

#include <memory>
#include <utility>

#include "common/comm/forwarding_communicator.hpp"

namespace ladder {

class StagedCommunicator final : public ForwardingCommunicator {
 public:
  // kEverything stages tensors on the CPU as well, so that tests need no GPU.
  enum class Staged { kDeviceTensors, kEverything };
  explicit StagedCommunicator(std::unique_ptr<Communicator> inner,
                              Staged staged = Staged::kDeviceTensors)
      : ForwardingCommunicator(std::move(inner)), staged_(staged) {}

  WorkPtr start(const Operation& operation) override;
  std::unique_ptr<Communicator> split(int color, int key) override;

 private:
  Staged staged_;
};

}  // namespace ladder
