#include "common/comm/simulated/simulated_communicator.hpp"

#include <algorithm>
#include <utility>
#include <vector>

#include "common/comm/argument_checks.hpp"
#include "common/comm/traffic_theory.hpp"
#include "common/core/check.hpp"
#include "common/core/memory_ledger.hpp"
#include "common/core/timer.hpp"

namespace ladder {

// What a rank's groups share: its clock, its links and its meter.
class SimulatedClock {
 public:
  explicit SimulatedClock(const Links& links) : queues_(links) {}

  Traffic traffic;

  double now_s() const { return computing_.seconds() + waited_s_; }
  double waited_s() const { return waited_s_; }
  void wait_until(double end_s) { waited_s_ += std::max(0.0, end_s - now_s()); }
  // Queues for the links; returns the time at which they will have sent this.
  double occupy(const LinksUse& use) { return queues_.occupy(now_s(), use); }
  // When another rank's message is here that is sent now.
  double arrival_of(const LinksUse& use) const { return now_s() + seconds(use); }
  double seconds(const LinksUse& use) const { return link_seconds(queues_.links(), use); }

 private:
  LinkQueues queues_;
  CpuTimer computing_;
  double waited_s_ = 0;
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

}  // namespace

SimulatedCommunicator::SimulatedCommunicator(int rank, int size, const Links& links,
                                             Machines machines)
    : SimulatedCommunicator(rank, size, std::move(machines),
                            std::make_shared<SimulatedClock>(links)) {}

SimulatedCommunicator::SimulatedCommunicator(int rank, int size, Machines machines,
                                             std::shared_ptr<SimulatedClock> clock)
    : rank_(rank), size_(size), machines_(std::move(machines)), clock_(std::move(clock)) {
  check(0 <= rank && rank < size, "there is no rank ", rank, " in a simulated group of ", size);
}

// No slice is longer than rank 0's; and of machines that are filled one after the other, the last
// one may have fewer ranks, which send more to others.
LinksUse SimulatedCommunicator::sent_by_slowest(const Operation& operation) const {
  if (operation.is_message()) return sent_by(operation, size_, rank_, machines_).links;
  if (operation.kind == CommOp::kBroadcast)
    return sent_by(operation, size_, operation.peer, machines_).links;
  const LinksUse first = sent_by(operation, size_, 0, machines_).links;
  if (machines_.is_one()) return first;
  const LinksUse last = sent_by(operation, size_, size_ - 1, machines_).links;
  return clock_->seconds(first) >= clock_->seconds(last) ? first : last;
}

WorkPtr SimulatedCommunicator::start(const Operation& operation) {
  check_operation(operation, *this);
  answer(operation, size_, rank_);
  clock_->traffic += traffic_of(operation, size_, rank_, machines_);
  Operation sent = operation;  // by the other rank, of a message that arrives
  if (operation.kind == CommOp::kRecv) sent.kind = CommOp::kSend;
  const LinksUse use = sent_by_slowest(sent);
  const double end_s =
      operation.kind == CommOp::kRecv ? clock_->arrival_of(use) : clock_->occupy(use);
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
  std::vector<int> members;
  for (int rank = 0; rank < size_; ++rank) {
    if (color_of(rank) == color) members.push_back(rank);
  }
  const auto own_place = std::find(members.begin(), members.end(), rank_) - members.begin();
  return std::unique_ptr<Communicator>(
      new SimulatedCommunicator(static_cast<int>(own_place), static_cast<int>(members.size()),
                                machines_.of_part(members), clock_));
}

Traffic SimulatedCommunicator::traffic() const {
  return clock_->traffic;
}
std::optional<double> SimulatedCommunicator::simulated_wait_s() const {
  return clock_->waited_s();
}

}  // namespace ladder
