// A Communicator for the judge: ranks that do not do the same are told so, instead of waiting for
// each other forever.
//
// Before each collective all ranks agree on what it is. Where they differ, each of them gets a
// Disagreement that says what every rank is about to do, and so does every call after that.
// finish() is the last such agreement: that no rank has more to do. send, recv and split are
// refused, which data parallelism needs not, or passed on unwatched.
//
// Collective: as Communicator.
// Lifetime:   `inner` and `agreements` outlive this. `agreements` is a second group of the same
//             ranks.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "common/comm/forwarding_communicator.hpp"
#include "common/core/check.hpp"

namespace ladder {

class Disagreement : public CheckError {
 public:
  using CheckError::CheckError;
};

class LockstepCommunicator : public ForwardingCommunicator {
 public:
  LockstepCommunicator(Communicator& inner, Communicator& agreements)
      : ForwardingCommunicator(inner), agreements_(agreements) {}

  // What the answer sends, without the agreements.
  Traffic traffic() const override;

  // What this rank has asked for: "all_reduce of 12 elements", ….
  const std::vector<std::string>& calls() const { return calls_; }

  // From here on, send, recv and split are the inner communicator's.
  void pass_messages_on() { passes_messages_on_ = true; }

  // Nothing after this. Throws Disagreement if a rank is about to do something else.
  void finish();

  WorkPtr start(const Operation& operation) override;
  std::unique_ptr<Communicator> split(int color, int key) override;

 private:
  void agree(const std::string& intent);

  Communicator& agreements_;
  Traffic of_agreements_;
  std::vector<std::string> calls_;
  std::string disagreement_;
  bool passes_messages_on_ = false;
};

}  // namespace ladder
