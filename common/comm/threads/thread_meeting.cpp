#include "common/comm/threads/thread_meeting.hpp"

#include <exception>
#include <utility>

#include "common/comm/argument_checks.hpp"
#include "common/core/check.hpp"

namespace ladder {
namespace {

std::string who(const ThreadPart& part) {
  return message_prefix(part.rank, part.size, part.call);
}

}  // namespace

std::string ThreadRanks::name_of(int rank) const {
  return concat("rank ", rank, " of all ", has_left.size());
}

ThreadMeeting::ThreadMeeting(std::shared_ptr<ThreadRanks> ranks, std::vector<int> members)
    : ranks_(std::move(ranks)),
      members_(std::move(members)),
      parts_(members_.size()),
      has_arrived_(members_.size()) {}

void ThreadMeeting::arrive(int seat, ThreadPart part) {
  if (!ranks_->failure.empty()) throw CheckError(who(part) + ranks_->failure);
  const auto index = static_cast<std::size_t>(seat);
  parts_[index] = std::move(part);
  has_arrived_[index] = true;
  ++num_arrived_;
}

void ThreadMeeting::act() {
  std::string failure;
  try {
    parts_.back().act(parts_);
  } catch (const std::exception& error) {
    failure = error.what();
  }
  for (ThreadPart& part : parts_) {
    if (!failure.empty()) part.error = failure;
    part.operation = {};  // others may keep the meeting longer than this rank needs its tensors
  }
  {
    const std::lock_guard lock(ranks_->mutex);
    is_done_ = true;
  }
  ranks_->changed.notify_all();
}

bool ThreadMeeting::test(int seat) {
  const std::lock_guard lock(ranks_->mutex);
  return is_over(seat);
}

void ThreadMeeting::wait(int seat) {
  std::unique_lock lock(ranks_->mutex);
  while (!is_over(seat)) ranks_->changed.wait(lock);
}

bool ThreadMeeting::is_over(int seat) const {
  std::string error;
  if (is_done_) {
    error = part(seat).error;
  } else if (!is_complete()) {  // otherwise the last rank is using the tensors: wait for it
    error = what_prevents();
  }
  if (!error.empty()) throw CheckError(who(part(seat)) + error);
  return is_done_;
}

std::string ThreadMeeting::what_prevents() const {
  if (!ranks_->failure.empty()) return ranks_->failure;
  for (std::size_t seat = 0; seat < members_.size(); ++seat) {
    const int rank = members_[seat];
    if (has_arrived_[seat] || !ranks_->has_left[static_cast<std::size_t>(rank)]) continue;
    return ranks_->name_of(rank) + " has ended without taking part";
  }
  return {};
}

}  // namespace ladder
