#include "common/comm/threads/thread_messages.hpp"

#include <algorithm>
#include <cstring>
#include <numeric>
#include <utility>
#include <vector>

#include "common/comm/messages/keyed_messages.hpp"
#include "common/comm/messages/message_communicator.hpp"
#include "common/core/check.hpp"

namespace ladder {

struct ThreadGroup final : KeyedGroup {
  std::unique_ptr<Messages> new_messages(CommOp op) override;
  std::shared_ptr<MessageGroup> part(int color, const std::vector<int>& members) override;

  ThreadRanks* ranks = nullptr;
  std::vector<int> members;  // as numbered in the process
};

class ThreadMessages final : public KeyedMessages {
 public:
  ThreadMessages(ThreadGroup& group, CommOp op)
      : KeyedMessages(group, op), ranks_(*group.ranks), group_(group) {}

  void put(const std::string& key, const std::byte* data, std::int64_t bytes, int peer) override {
    const std::lock_guard lock(ranks_.mutex_);
    check(ranks_.failure_.empty(), who(), ranks_.failure_);
    auto is_taken = std::make_shared<bool>(bytes == 0);
    if (bytes > 0) sent_.push_back({is_taken, peer});
    ranks_.messages_[key] = {op_, data, bytes, member(group_.rank), std::move(is_taken)};
    ranks_.tell(member(peer));
  }

  bool try_take(const Awaited& awaited) override {
    std::unique_lock lock(ranks_.mutex_);
    const auto found = ranks_.messages_.find(awaited.key);
    if (found == ranks_.messages_.end()) {
      expect_more_of(awaited.peer);
      return false;
    }
    const ThreadRanks::Message message = std::move(found->second);
    ranks_.messages_.erase(found);
    lock.unlock();
    const std::string problem = difference(awaited, message.op, message.bytes);
    if (!problem.empty()) {
      error_ = problem;
    } else if (message.bytes > 0) {
      std::memcpy(awaited.data, message.data, static_cast<std::size_t>(message.bytes));
    }
    lock.lock();
    *message.is_taken = true;
    ranks_.tell(message.sender);
    return true;
  }

  bool is_all_taken() override {
    const std::lock_guard lock(ranks_.mutex_);
    std::erase_if(sent_, [](const Sent& sent) { return *sent.is_taken; });
    for (const Sent& sent : sent_) expect_more_of(sent.receiver);
    return sent_.empty();
  }

  // What has changed since the last call may already have been seen: then this returns once too
  // often, never too late.
  void idle(double /*waited_s*/) override {
    std::unique_lock lock(ranks_.mutex_);
    ThreadRanks::Rank& own = ranks_.ranks_[static_cast<std::size_t>(member(group_.rank))];
    own.changed.wait(lock, [&] { return own.num_changes != own.num_seen; });
    own.num_seen = own.num_changes;
  }

 private:
  struct Sent {
    std::shared_ptr<bool> is_taken;
    int receiver;
  };
  int member(int rank) const { return group_.members[static_cast<std::size_t>(rank)]; }
  // With the lock.
  void expect_more_of(int peer) {
    const int rank = member(peer);
    if (!ranks_.failure_.empty()) error_ = ranks_.failure_;
    if (error_.empty() && ranks_.ranks_[static_cast<std::size_t>(rank)].has_left)
      error_ = ranks_.name_of(rank) + " has ended without taking part";
  }

  ThreadRanks& ranks_;
  ThreadGroup& group_;
  std::vector<Sent> sent_;
};

std::unique_ptr<Messages> ThreadGroup::new_messages(CommOp op) {
  return std::make_unique<ThreadMessages>(*this, op);
}

std::shared_ptr<MessageGroup> ThreadGroup::part(int color, const std::vector<int>& of_part) {
  auto part = std::make_shared<ThreadGroup>();
  part->prefix = prefix_of_part(color);
  part->ranks = ranks;
  for (const int old : of_part) part->members.push_back(members[static_cast<std::size_t>(old)]);
  return part;
}

ThreadRanks::ThreadRanks(int num_ranks) : ranks_(static_cast<std::size_t>(std::max(num_ranks, 0))) {
  check(num_ranks >= 1, "a group of ", num_ranks, " threads: it must have at least one");
}

std::unique_ptr<Communicator> ThreadRanks::communicator(int rank) {
  auto group = std::make_shared<ThreadGroup>();
  group->rank = rank;
  group->size = size();
  group->meter = std::make_shared<Traffic>();
  group->ranks = this;
  group->members.resize(ranks_.size());
  std::iota(group->members.begin(), group->members.end(), 0);
  return std::make_unique<MessageCommunicator>(std::move(group));
}

void ThreadRanks::leave(int rank) {
  const std::lock_guard lock(mutex_);
  ranks_[static_cast<std::size_t>(rank)].has_left = true;
  tell_all();
}

void ThreadRanks::fail(int rank, const std::string& reason) {
  const std::lock_guard lock(mutex_);
  if (failure_.empty()) failure_ = concat(name_of(rank), " has failed: ", reason);
  tell_all();
}

std::string ThreadRanks::name_of(int rank) const {
  return concat("rank ", rank, " of all ", size());
}

void ThreadRanks::tell(int rank) {
  Rank& told = ranks_[static_cast<std::size_t>(rank)];
  ++told.num_changes;
  told.changed.notify_all();
}

void ThreadRanks::tell_all() {
  for (int rank = 0; rank < size(); ++rank) tell(rank);
}

}  // namespace ladder
