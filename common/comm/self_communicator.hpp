// The transport of a world of one rank: every collective copies or does nothing and sends no byte.
//
// Arguments are checked as on many ranks, so arguments that pass on one rank also pass on more.
// Calls are counted. send and recv are refused, because no other rank exists.
#pragma once

#include "common/comm/communicator.hpp"

namespace ladder {

class SelfCommunicator final : public Communicator {
 public:
  int rank() const override { return 0; }
  int size() const override { return 1; }

  WorkPtr all_reduce(at::Tensor inout) override;
  WorkPtr reduce_scatter(const at::Tensor& full, at::Tensor shard) override;
  WorkPtr all_gather(const at::Tensor& shard, at::Tensor full) override;
  WorkPtr broadcast(at::Tensor inout, int root) override;
  WorkPtr send(const at::Tensor& tensor, int peer, int tag) override;
  WorkPtr recv(at::Tensor tensor, int peer, int tag) override;
  void barrier() override;
  std::unique_ptr<Communicator> split(int color, int key) override;
  Traffic traffic() const override { return *meter_; }

 private:
  WorkPtr done(CommOp op);  // counts the call

  std::shared_ptr<Traffic> meter_ = std::make_shared<Traffic>();  // shared by split groups
};

}  // namespace ladder
