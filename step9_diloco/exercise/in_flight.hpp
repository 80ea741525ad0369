// For the judge: values that an operation works on, and that nobody else may touch meanwhile.
//
// Between the start of the operation and its end they hold a number that is of no use to anybody.
// So to read them too early gives wrong results, and a write is noticed, whatever the transport
// does when.
#pragma once

#include <ATen/ops/full_like.h>

#include <memory>
#include <optional>
#include <set>
#include <utility>

#include "common/comm/forwarding_communicator.hpp"
#include "common/core/check.hpp"
#include "common/core/memory_ledger.hpp"
#include "step9_diloco/averager.hpp"

namespace ladder::step9 {

class InFlight {
 public:
  explicit InFlight(at::Tensor values) : values_(std::move(values)) {
    const MemoryScope scope(MemoryCategory::kCommunication);
    sent_ = values_.clone();
    values_.fill_(kNothing);
  }
  // A copy from the start, for the operation to work on.
  const at::Tensor& sent() const { return sent_; }
  // The values become what the copy is now. Returns false if they have been written to.
  bool land() {
    const MemoryScope scope(MemoryCategory::kCommunication);
    const bool is_untouched = values_.equal(at::full_like(values_, kNothing));
    values_.copy_(sent_);
    return is_untouched;
  }

 private:
  static constexpr float kNothing = -12345;

  at::Tensor values_, sent_;
};

// All-reduces whose tensors are in flight until they are waited for.
// Lifetime: as ForwardingCommunicator.
class InFlightCommunicator final : public ForwardingCommunicator {
 public:
  using ForwardingCommunicator::ForwardingCommunicator;

  const void* last_data() const { return last_data_; }  // of the last all-reduce's tensor
  bool is_touched() const { return *is_touched_; }      // any of them, while in flight

  WorkPtr start(const Operation& operation) override {
    if (operation.kind != CommOp::kAllReduce) return inner_.start(operation);
    last_data_ = operation.tensor.const_data_ptr();
    InFlight flight(operation.tensor);
    WorkPtr inner = inner_.all_reduce(flight.sent());
    return std::make_unique<FlightWork>(std::move(inner), std::move(flight), is_touched_);
  }

 private:
  class FlightWork final : public Work {
   public:
    FlightWork(WorkPtr inner, InFlight flight, std::shared_ptr<bool> is_touched)
        : inner_(std::move(inner)),
          flight_(std::move(flight)),
          is_touched_(std::move(is_touched)) {}
    bool test() override {
      const bool is_done = inner_->test();
      if (is_done) land();
      return is_done;
    }
    void wait() override {
      inner_->wait();
      land();
    }

   private:
    void land() {
      if (!std::exchange(has_landed_, true) && !flight_.land()) *is_touched_ = true;
    }

    WorkPtr inner_;
    InFlight flight_;
    std::shared_ptr<bool> is_touched_;
    bool has_landed_ = false;
  };

  const void* last_data_ = nullptr;
  std::shared_ptr<bool> is_touched_ = std::make_shared<bool>(false);
};

// An averager that records what it is asked for, and whose rounds fail when they are told to.
// Lifetime: the communicator outlives it.
class RecordingAverager final : public Averager {
 public:
  // Rounds are counted from 1.
  RecordingAverager(Communicator& comm, std::set<int> failures)
      : comm_(comm), failures_(std::move(failures)) {}

  struct Counts {
    int num_started = 0, num_finished = 0;
    bool is_touched = false;  // something was written to while in flight
    at::Tensor sent;          // a copy of what was started last
  };
  const Counts& counts() const { return counts_; }  // of this round
  void begin_round(int round) {
    round_ = round;
    counts_ = {};
  }

  void start(at::Tensor values) override {
    check(!flight_, "an average is started, but the one before is still in flight");
    ++counts_.num_started;
    flight_.emplace(std::move(values));
    const MemoryScope scope(MemoryCategory::kCommunication);
    counts_.sent = flight_->sent().clone();
  }
  std::optional<int> finish() override {
    check(flight_.has_value(), "an average is waited for, but none is in flight");
    ++counts_.num_finished;
    comm_.all_reduce(flight_->sent())->wait();
    flight_->sent().div_(comm_.size());
    const bool has_failed = failures_.contains(round_);
    if (has_failed) flight_->sent().fill_(kMeaningless);
    counts_.is_touched |= !flight_->land();
    flight_.reset();
    return has_failed ? std::nullopt : std::optional(comm_.size());
  }

 private:
  static constexpr float kMeaningless = -54321;  // the values of a round that has failed

  Communicator& comm_;
  std::set<int> failures_;
  int round_ = 0;
  Counts counts_;
  std::optional<InFlight> flight_;
};

}  // namespace ladder::step9
