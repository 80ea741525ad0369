#include "common/comm/threads/thread_communicator.hpp"

#include <mutex>
#include <numeric>
#include <utility>

#include "common/comm/argument_checks.hpp"
#include "common/comm/threads/thread_exchange.hpp"
#include "common/comm/threads/thread_group.hpp"
#include "common/comm/traffic_theory.hpp"
#include "common/core/check.hpp"

namespace ladder {
namespace {

class ThreadWork final : public Work {
 public:
  ThreadWork(std::shared_ptr<ThreadMeeting> meeting, int seat)
      : meeting_(std::move(meeting)), seat_(seat) {}

  bool test() override { return meeting_->test(seat_); }
  void wait() override { meeting_->wait(seat_); }

 private:
  std::shared_ptr<ThreadMeeting> meeting_;
  int seat_;
};

}  // namespace

std::vector<std::unique_ptr<ThreadCommunicator>> ThreadCommunicator::create(int num_ranks) {
  check(num_ranks >= 1, "a group of ", num_ranks, " threads: it must have at least one");
  std::vector<int> members(static_cast<std::size_t>(num_ranks));
  std::iota(members.begin(), members.end(), 0);
  const auto group =
      std::make_shared<ThreadGroup>(std::make_shared<ThreadRanks>(num_ranks), members);
  std::vector<std::unique_ptr<ThreadCommunicator>> comms;
  for (const int rank : members) {
    comms.emplace_back(new ThreadCommunicator(group, rank, std::make_shared<Traffic>()));
  }
  return comms;
}

ThreadCommunicator::ThreadCommunicator(std::shared_ptr<ThreadGroup> group, int rank,
                                       std::shared_ptr<Traffic> meter)
    : group_(std::move(group)), rank_(rank), meter_(std::move(meter)) {}

void ThreadCommunicator::leave() {
  ThreadRanks& ranks = group_->ranks();
  {
    const std::lock_guard lock(ranks.mutex);
    ranks.has_left[static_cast<std::size_t>(group_->number_in_process(rank_))] = true;
  }
  ranks.changed.notify_all();
}

void ThreadCommunicator::abort(const std::string& reason) {
  ThreadRanks& ranks = group_->ranks();
  {
    const std::lock_guard lock(ranks.mutex);
    if (ranks.failure.empty()) {
      ranks.failure = ranks.name_of(group_->number_in_process(rank_)) + " has failed: " + reason;
    }
  }
  ranks.changed.notify_all();
}

int ThreadCommunicator::size() const {
  return group_->size();
}

WorkPtr ThreadCommunicator::start(const Operation& operation) {
  check_operation(operation, *this);
  *meter_ += traffic_of(operation, size(), rank_);
  ThreadPart part = {.call = to_string(operation.kind),
                     .act = exchange,
                     .rank = rank_,
                     .size = size(),
                     .operation = operation};
  if (!operation.is_message())
    return std::make_unique<ThreadWork>(group_->meet(num_started_++, std::move(part)), rank_);
  if (operation.tensor.numel() == 0) return std::make_unique<DoneWork>();  // it meets nobody
  const bool is_send = operation.kind == CommOp::kSend;
  const int seat = is_send ? ThreadGroup::kSender : ThreadGroup::kReceiver;
  auto meeting = group_->meet({.sender = is_send ? rank_ : operation.peer,
                               .receiver = is_send ? operation.peer : rank_,
                               .tag = operation.tag},
                              seat, std::move(part));
  return std::make_unique<ThreadWork>(std::move(meeting), seat);
}

std::unique_ptr<Communicator> ThreadCommunicator::split(int color, int key) {
  const auto act = [&](std::vector<ThreadPart>& parts) { group_->act_split(parts); };
  const auto meeting = group_->meet(
      num_started_++,
      {.call = "split", .act = act, .rank = rank_, .size = size(), .color = color, .key = key});
  meeting->wait(rank_);
  const ThreadPart& part = meeting->part(rank_);
  if (part.part_of_group == nullptr) return nullptr;
  return std::unique_ptr<Communicator>(
      new ThreadCommunicator(part.part_of_group, part.rank_in_part, meter_));
}

}  // namespace ladder
