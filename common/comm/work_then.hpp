// An operation of another communicator, and what is left to do when this rank learns that it is
// done: in the first test() that says so, or in wait(); once.
#pragma once

#include <functional>
#include <utility>

#include "common/comm/communicator.hpp"

namespace ladder {

class WorkThen : public Work {
 public:
  WorkThen(WorkPtr inner, std::function<void()> act)
      : inner_(std::move(inner)), act_(std::move(act)) {}

  bool test() override {
    const bool is_done = inner_->test();
    if (is_done) end();
    return is_done;
  }
  void wait() override {
    inner_->wait();
    end();
  }

 private:
  // What `act` holds is freed with it.
  void end() {
    if (const auto act = std::exchange(act_, nullptr)) act();
  }

  WorkPtr inner_;
  std::function<void()> act_;
};

}  // namespace ladder
