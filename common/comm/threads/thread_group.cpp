#include "common/comm/threads/thread_group.hpp"

#include <algorithm>
#include <utility>

#include "common/comm/threads/thread_exchange.hpp"

namespace ladder {

ThreadGroup::ThreadGroup(std::shared_ptr<ThreadRanks> ranks, std::vector<int> members)
    : ranks_(std::move(ranks)), members_(std::move(members)) {}

std::shared_ptr<ThreadMeeting> ThreadGroup::meet(std::int64_t number, ThreadPart part) {
  std::unique_lock lock(ranks_->mutex);
  std::shared_ptr<ThreadMeeting>& entry = collectives_[number];
  if (entry == nullptr) entry = std::make_shared<ThreadMeeting>(ranks_, members_);
  const std::shared_ptr<ThreadMeeting> meeting = entry;
  const int seat = part.rank;
  meeting->arrive(seat, std::move(part));
  if (!meeting->is_complete()) return meeting;
  collectives_.erase(number);
  lock.unlock();
  meeting->act();
  return meeting;
}

std::shared_ptr<ThreadMeeting> ThreadGroup::meet(Line line, int seat, ThreadPart part) {
  std::unique_lock lock(ranks_->mutex);
  Waiting& waiting = messages_[line];
  if (waiting.meetings.empty() || waiting.free_seat != seat) {
    const auto meeting = std::make_shared<ThreadMeeting>(
        ranks_, std::vector{number_in_process(line.sender), number_in_process(line.receiver)});
    meeting->arrive(seat, std::move(part));
    waiting.free_seat = seat == kSender ? kReceiver : kSender;
    waiting.meetings.push_back(meeting);
    return meeting;
  }
  const std::shared_ptr<ThreadMeeting> meeting = waiting.meetings.front();
  meeting->arrive(seat, std::move(part));
  waiting.meetings.pop_front();
  if (waiting.meetings.empty()) messages_.erase(line);
  lock.unlock();
  meeting->act();
  return meeting;
}

void ThreadGroup::act_split(std::vector<ThreadPart>& parts) const {
  if (!is_same_call(parts)) return;
  std::map<int, std::vector<ThreadPart*>> by_color;
  for (ThreadPart& part : parts) {
    if (part.color >= 0) by_color[part.color].push_back(&part);
  }
  for (auto& [color, members] : by_color) {
    std::stable_sort(members.begin(), members.end(),
                     [](const auto* a, const auto* b) { return a->key < b->key; });
    std::vector<int> numbers;
    for (const ThreadPart* member : members) numbers.push_back(number_in_process(member->rank));
    const auto group = std::make_shared<ThreadGroup>(ranks_, numbers);
    for (std::size_t i = 0; i < members.size(); ++i) {
      members[i]->part_of_group = group;
      members[i]->rank_in_part = static_cast<int>(i);
    }
  }
}

}  // namespace ladder
