// For the judge, part 2: an averager that records what it is asked for, and whose rounds fail when
// they are told to.
#pragma once

#include <optional>
#include <set>
#include <utility>

#include "common/core/check.hpp"
#include "step9_diloco/averager.hpp"
#include "step9_diloco/exercise/in_flight.hpp"

namespace ladder::step9 {

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
