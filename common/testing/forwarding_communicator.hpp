// A Communicator that passes every call on to another one: what a grader or a wrong answer
// overrides a call of.
//
// Lifetime: `inner` outlives this.
#pragma once

#include <utility>

#include "common/comm/communicator.hpp"

namespace ladder {

class ForwardingCommunicator : public Communicator {
 public:
  explicit ForwardingCommunicator(Communicator& inner) : inner_(inner) {}

  int rank() const override { return inner_.rank(); }
  int size() const override { return inner_.size(); }
  WorkPtr all_reduce(at::Tensor inout) override { return inner_.all_reduce(std::move(inout)); }
  WorkPtr reduce_scatter(const at::Tensor& full, at::Tensor shard) override {
    return inner_.reduce_scatter(full, std::move(shard));
  }
  WorkPtr all_gather(const at::Tensor& shard, at::Tensor full) override {
    return inner_.all_gather(shard, std::move(full));
  }
  WorkPtr broadcast(at::Tensor inout, int root) override {
    return inner_.broadcast(std::move(inout), root);
  }
  WorkPtr send(const at::Tensor& tensor, int peer, int tag) override {
    return inner_.send(tensor, peer, tag);
  }
  WorkPtr recv(at::Tensor tensor, int peer, int tag) override {
    return inner_.recv(std::move(tensor), peer, tag);
  }
  void barrier() override { inner_.barrier(); }
  std::unique_ptr<Communicator> split(int color, int key) override {
    return inner_.split(color, key);
  }
  Traffic traffic() const override { return inner_.traffic(); }

 protected:
  Communicator& inner_;
};

}  // namespace ladder
