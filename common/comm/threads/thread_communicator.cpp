#include "common/comm/threads/thread_communicator.hpp"

#include <limits>
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

constexpr std::int64_t kNumTags = std::numeric_limits<int>::max();

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

// An empty message meets nobody.
class EmptyMessageWork final : public Work {
 public:
  bool test() override { return true; }
  void wait() override {}
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

std::shared_ptr<ThreadMeeting> ThreadCommunicator::meet(ThreadPart part) {
  part.rank = rank_;
  part.size = size();
  return group_->meet(num_started_++, std::move(part));
}

WorkPtr ThreadCommunicator::collective(ThreadPart part) {
  return std::make_unique<ThreadWork>(meet(std::move(part)), rank_);
}

WorkPtr ThreadCommunicator::all_reduce(at::Tensor inout) {
  check_reducible(*this, CommOp::kAllReduce, inout);
  *meter_ += all_reduce_traffic(inout.numel(), inout.element_size(), size(), rank_);
  return collective({.call = "all_reduce", .act = act_all_reduce, .tensor = std::move(inout)});
}

WorkPtr ThreadCommunicator::reduce_scatter(const at::Tensor& full, at::Tensor shard) {
  check_reducible(*this, CommOp::kReduceScatter, full);
  check_shards(*this, CommOp::kReduceScatter, full, shard);
  *meter_ += reduce_scatter_traffic(full.numel(), full.element_size(), size(), rank_);
  return collective({.call = "reduce_scatter",
                     .act = act_reduce_scatter,
                     .tensor = full,
                     .shard = std::move(shard)});
}

WorkPtr ThreadCommunicator::all_gather(const at::Tensor& shard, at::Tensor full) {
  check_shards(*this, CommOp::kAllGather, full, shard);
  *meter_ += all_gather_traffic(full.numel(), full.element_size(), size(), rank_);
  return collective(
      {.call = "all_gather", .act = act_all_gather, .tensor = std::move(full), .shard = shard});
}

WorkPtr ThreadCommunicator::broadcast(at::Tensor inout, int root) {
  check_movable(*this, CommOp::kBroadcast, inout);
  check_root(*this, CommOp::kBroadcast, root);
  *meter_ += broadcast_traffic(inout.numel(), inout.element_size(), size(), rank_, root);
  return collective(
      {.call = "broadcast", .act = act_broadcast, .tensor = std::move(inout), .root = root});
}

WorkPtr ThreadCommunicator::send(const at::Tensor& tensor, int peer, int tag) {
  check_movable(*this, CommOp::kSend, tensor);
  check_peer(*this, CommOp::kSend, peer);
  check_tag(*this, CommOp::kSend, tag, kNumTags);
  *meter_ += send_traffic(tensor.numel(), tensor.element_size());
  if (tensor.numel() == 0) return std::make_unique<EmptyMessageWork>();
  auto meeting = group_->meet(
      {.sender = rank_, .receiver = peer, .tag = tag}, ThreadGroup::kSender,
      {.call = "send", .act = act_message, .rank = rank_, .size = size(), .tensor = tensor});
  return std::make_unique<ThreadWork>(std::move(meeting), ThreadGroup::kSender);
}

WorkPtr ThreadCommunicator::recv(at::Tensor tensor, int peer, int tag) {
  check_movable(*this, CommOp::kRecv, tensor);
  check_peer(*this, CommOp::kRecv, peer);
  check_tag(*this, CommOp::kRecv, tag, kNumTags);
  ++(*meter_)[CommOp::kRecv].calls;
  if (tensor.numel() == 0) return std::make_unique<EmptyMessageWork>();
  auto meeting = group_->meet(
      {.sender = peer, .receiver = rank_, .tag = tag}, ThreadGroup::kReceiver,
      {.call = "recv", .act = act_message, .rank = rank_, .size = size(), .tensor = tensor});
  return std::make_unique<ThreadWork>(std::move(meeting), ThreadGroup::kReceiver);
}

void ThreadCommunicator::barrier() {
  ++(*meter_)[CommOp::kBarrier].calls;
  collective({.call = "barrier", .act = act_barrier})->wait();
}

std::unique_ptr<Communicator> ThreadCommunicator::split(int color, int key) {
  const auto act = [&](std::vector<ThreadPart>& parts) { group_->act_split(parts); };
  const auto meeting = meet({.call = "split", .act = act, .color = color, .key = key});
  meeting->wait(rank_);
  const ThreadPart& part = meeting->part(rank_);
  if (part.part_of_group == nullptr) return nullptr;
  return std::unique_ptr<Communicator>(
      new ThreadCommunicator(part.part_of_group, part.rank_in_part, meter_));
}

}  // namespace ladder
