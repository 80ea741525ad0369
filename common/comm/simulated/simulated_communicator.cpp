#include "common/comm/simulated/simulated_communicator.hpp"

#include <algorithm>
#include <utility>

#include "common/comm/argument_checks.hpp"
#include "common/comm/traffic_theory.hpp"
#include "common/core/check.hpp"
#include "common/core/memory_ledger.hpp"
#include "common/core/timer.hpp"

namespace ladder {

// What a rank's groups share: its clock, its link and its meter.
class SimulatedClock {
 public:
  explicit SimulatedClock(Link link) : link_(link) {}

  Traffic traffic;

  double now_s() const { return computing_.seconds() + waited_s_; }
  double waited_s() const { return waited_s_; }
  void wait_until(double end_s) { waited_s_ += std::max(0.0, end_s - now_s()); }
  // Queues for the link; returns the time at which it will have sent this.
  double occupy(const OpTraffic& sent) {
    return free_at_s_ = std::max(free_at_s_, now_s()) + link_seconds(link_, sent);
  }
  // When another rank's message is here that is sent now.
  double arrival_of(const OpTraffic& sent) const { return now_s() + link_seconds(link_, sent); }

 private:
  Link link_;
  CpuTimer computing_;
  double waited_s_ = 0;
  double free_at_s_ = 0;
};

namespace {

class SimulatedWork final : public Work {
 public:
  SimulatedWork(Operation operation, std::shared_ptr<SimulatedClock> clock, double end_s)
      : operation_(std::move(operation)), clock_(std::move(clock)), end_s_(end_s) {}
  bool test() override { return clock_->now_s() >= end_s_; }
  void wait() override { clock_->wait_until(end_s_); }

 private:
  Operation operation_;  // its tensors stay alive as long as in a real run
  std::shared_ptr<SimulatedClock> clock_;
  double end_s_;
};

// Autograd does not count what is written there, as with the other transports.
at::Tensor rows_of(const at::Tensor& tensor, std::int64_t num_rows) {
  return tensor.variable_data().view({num_rows, tensor.numel() / num_rows});
}

void fill_slots(const at::Tensor& shard, const at::Tensor& full, int size, int rank) {
  const at::Tensor slots = rows_of(full, size), own = rows_of(shard, 1);
  slots.narrow(0, 0, rank).copy_(own);
  slots.narrow(0, rank + 1, size - rank - 1).copy_(own);
  if (slots[rank].const_data_ptr() != own.const_data_ptr()) slots[rank].copy_(own[0]);
}

void sum_slice(const at::Tensor& full, const at::Tensor& shard, int size, int rank) {
  const at::Tensor slice = rows_of(full, size)[rank], sum = rows_of(shard, 1)[0];
  if (slice.const_data_ptr() != sum.const_data_ptr()) sum.copy_(slice);
  sum.mul_(size);
}

void answer(const Operation& operation, int size, int rank) {
  const MemoryScope scope(MemoryCategory::kCommunication);
  switch (operation.kind) {
    case CommOp::kAllReduce:
      operation.tensor.variable_data().mul_(size);
      return;
    case CommOp::kReduceScatter:
      return sum_slice(operation.tensor, operation.shard, size, rank);
    case CommOp::kAllGather:
      return fill_slots(operation.shard, operation.tensor, size, rank);
    case CommOp::kRecv:
      operation.tensor.variable_data().zero_();
      return;
    default:
      return;
  }
}

// What the root sends, or the rank that sends most: no slice is longer than rank 0's.
OpTraffic sent_by_slowest(const Operation& operation, int size) {
  const int slowest = operation.kind == CommOp::kBroadcast ? operation.peer : 0;
  return traffic_of(operation, size, slowest)[operation.kind];
}

}  // namespace

SimulatedCommunicator::SimulatedCommunicator(int rank, int size, Link link)
    : SimulatedCommunicator(rank, size, std::make_shared<SimulatedClock>(link)) {}

SimulatedCommunicator::SimulatedCommunicator(int rank, int size,
                                             std::shared_ptr<SimulatedClock> clock)
    : rank_(rank), size_(size), clock_(std::move(clock)) {
  check(0 <= rank && rank < size, "there is no rank ", rank, " in a simulated group of ", size);
}

WorkPtr SimulatedCommunicator::start(const Operation& operation) {
  check_operation(operation, *this);
  answer(operation, size_, rank_);
  clock_->traffic += traffic_of(operation, size_, rank_);
  const double end_s =
      operation.kind == CommOp::kRecv
          ? clock_->arrival_of(send_traffic(operation.tensor.numel(),
                                            operation.tensor.element_size())[CommOp::kSend])
          : clock_->occupy(sent_by_slowest(operation, size_));
  return std::make_unique<SimulatedWork>(operation, clock_, end_s);
}

std::unique_ptr<Communicator> SimulatedCommunicator::split(int color, int /*key*/) {
  throw CheckError(message_prefix(rank_, size_, "split") +
                   concat("a simulated rank knows its own color, ", color,
                          ", but no other rank's: split_by() says all of them"));
}

std::unique_ptr<Communicator> SimulatedCommunicator::split_by(const ColorOfRank& color_of) {
  const int color = color_of(rank_);
  if (color < 0) return nullptr;
  int num_members = 0, own_place = 0;
  for (int member = 0; member < size_; ++member) {
    if (member == rank_) own_place = num_members;
    if (color_of(member) == color) ++num_members;
  }
  return std::unique_ptr<Communicator>(new SimulatedCommunicator(own_place, num_members, clock_));
}

Traffic SimulatedCommunicator::traffic() const {
  return clock_->traffic;
}
std::optional<double> SimulatedCommunicator::simulated_wait_s() const {
  return clock_->waited_s();
}

}  // namespace ladder
