// A communicator that passes every call on to another one: decorators, judges and tests derive from
// it and override what they change. A part that split() returns is the inner communicator's, unless
// that is overridden as well.
#pragma once

#include <memory>
#include <utility>

#include "common/comm/communicator.hpp"
#include "common/core/check.hpp"

namespace ladder {

class ForwardingCommunicator : public Communicator {
 public:
  explicit ForwardingCommunicator(Communicator& inner) : inner_(inner) {}  // which outlives this
  explicit ForwardingCommunicator(std::unique_ptr<Communicator> inner)
      : owned_(std::move(inner)), inner_(existing(owned_)) {}

  int rank() const override { return inner_.rank(); }
  int size() const override { return inner_.size(); }
  WorkPtr start(const Operation& operation) override { return inner_.start(operation); }
  std::unique_ptr<Communicator> split(int color, int key) override {
    return inner_.split(color, key);
  }
  void promise_message_order() override { inner_.promise_message_order(); }
  Traffic traffic() const override { return inner_.traffic(); }
  Machines machines() const override { return inner_.machines(); }
  void begin_step(std::int64_t step) override { inner_.begin_step(step); }
  bool runs_in_order(const at::Tensor& tensor) const override {
    return inner_.runs_in_order(tensor);
  }
  std::optional<double> simulated_wait_s() const override { return inner_.simulated_wait_s(); }

  Communicator& inner() { return inner_; }

 private:
  static Communicator& existing(const std::unique_ptr<Communicator>& inner) {
    check(inner != nullptr, "a communicator that forwards needs one to forward to");
    return *inner;
  }

  std::unique_ptr<Communicator> owned_;  // null: the inner one is borrowed

 protected:
  Communicator& inner_;
};

// The communicator of this type that `comm` is, or forwards to; null if there is none.
template <class Type>
Type* find_communicator(Communicator& comm) {
  if (auto* const found = dynamic_cast<Type*>(&comm)) return found;
  auto* const forwarding = dynamic_cast<ForwardingCommunicator*>(&comm);
  return forwarding == nullptr ? nullptr : find_communicator<Type>(forwarding->inner());
}

}  // namespace ladder
