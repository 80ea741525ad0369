// A Communicator that passes every call on to another one: what the judge or a wrong answer
// overrides start() of.
//
// Lifetime: `inner` outlives this.
#pragma once

#include <memory>

#include "common/comm/communicator.hpp"

namespace ladder {

class ForwardingCommunicator : public Communicator {
 public:
  explicit ForwardingCommunicator(Communicator& inner) : inner_(inner) {}

  int rank() const override { return inner_.rank(); }
  int size() const override { return inner_.size(); }
  WorkPtr start(const Operation& operation) override { return inner_.start(operation); }
  std::unique_ptr<Communicator> split(int color, int key) override {
    return inner_.split(color, key);
  }
  Traffic traffic() const override { return inner_.traffic(); }

 protected:
  Communicator& inner_;
};

}  // namespace ladder
