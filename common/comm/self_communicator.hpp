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
  WorkPtr start(const Operation& operation) override;
  std::unique_ptr<Communicator> split(int color, int key) override;
  Traffic traffic() const override { return *meter_; }

 private:
  std::shared_ptr<Traffic> meter_ = std::make_shared<Traffic>();  // shared by split groups
};

}  // namespace ladder
