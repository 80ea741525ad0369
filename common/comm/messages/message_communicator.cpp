#include "common/comm/messages/message_communicator.hpp"

#include <ATen/ops/empty.h>

#include <algorithm>
#include <cstring>
#include <mutex>
#include <utility>
#include <vector>

#include "common/comm/argument_checks.hpp"
#include "common/comm/traffic_theory.hpp"
#include "common/comm/tree_fold.hpp"
#include "common/core/memory_ledger.hpp"
#include "common/core/timer.hpp"

namespace ladder {

// One started operation: a small state machine, since messages make no progress by themselves.
//
//   all_reduce      all-to-all → fold → gather → done
//   reduce_scatter  all-to-all → fold → done
//   all others      all-to-all → done
//
// In the all-to-all of a reduction, every rank sends slice r of its tensor to rank r, which folds
// the slices (tree_fold.hpp). In the gather, every rank sends its finished slice to all others. All
// messages of a phase are in flight at once. Both phases use the operation's one tag: between two
// ranks, messages with one tag keep their order, and all ranks post the first phase first.
//
// Lifetime: holds its tensors. It must not be destroyed before it is done, or MPI would write to
//           freed memory.
class MessageOperation {
 public:
  // Starts an operation that has been checked.
  MessageOperation(std::shared_ptr<MessageGroup> group, Operation operation);

  void advance();  // as far as possible without waiting
  void idle(double waited_s) { messages_->idle(waited_s); }
  bool is_done() const { return phase_ == Phase::kDone; }
  // The operation's position among the group's collectives, which determines the tag; -1 for
  // point-to-point operations and barriers.
  std::int64_t number() const { return number_; }
  const MessageGroup& group() const { return *group_; }

 private:
  enum class Phase { kAllToAll, kGather, kDone };
  using Bytes = RankSlices::Bytes;
  Channel channel() const {
    return operation_.is_message() ? Channel::kPointToPoint : Channel::kCollectives;
  }
  int tag() const { return operation_.is_message() ? operation_.tag : group_->tag_of(number_); }
  void send(Bytes bytes, int peer);
  void receive(Bytes bytes, int peer);
  void post();
  void post_all_to_all(std::byte* target);
  void post_gather();
  void fold();

  std::shared_ptr<MessageGroup> group_;
  Operation operation_;
  Phase phase_ = Phase::kAllToAll;
  std::int64_t number_ = -1;
  std::unique_ptr<Messages> messages_;
  RankSlices slices_;            // of the tensor
  std::byte* target_ = nullptr;  // receives the fold of this rank's slice
};

// Advances all started operations of the process, whichever of them is being waited for.
//
// One rank's fold is what another rank waits for. So a rank that waits for operation B must also
// advance A; otherwise two ranks that wait for A and B in different orders would wait forever. For
// the same reason all communicators of a World (the first and those split off) share one engine.
//
// An operation's error is thrown by whichever call advanced it.
class OperationEngine : public std::enable_shared_from_this<OperationEngine> {
 public:
  OperationEngine() = default;
  ~OperationEngine();
  OperationEngine(const OperationEngine&) = delete;
  OperationEngine& operator=(const OperationEngine&) = delete;

  WorkPtr start(std::shared_ptr<MessageOperation> operation);  // with messages already posted
  void advance();  // all operations once, without waiting
  void wait_for(MessageOperation& operation);
  // Waits until the tag of the group's next collective is free: its last user must be done.
  void wait_for_free_tag(const MessageGroup& group);

 private:
  std::vector<std::shared_ptr<MessageOperation>> in_flight_;
};

namespace {

class StartedWork final : public Work {
 public:
  StartedWork(std::shared_ptr<OperationEngine> engine, std::shared_ptr<MessageOperation> operation)
      : engine_(std::move(engine)), operation_(std::move(operation)) {}

  bool test() override {
    engine_->advance();  // even if this one is done: other ranks may wait for others
    return operation_->is_done();
  }
  void wait() override { engine_->wait_for(*operation_); }

 private:
  std::shared_ptr<OperationEngine> engine_;
  std::shared_ptr<MessageOperation> operation_;
};

// What all ranks pass to a split, in rank order. Not counted: no payload of the caller's is sent.
std::vector<ColorAndKey> gather_colors(const ColorAndKey& own, std::shared_ptr<MessageGroup> group,
                                       OperationEngine& engine) {
  const MemoryScope scope(MemoryCategory::kCommunication);
  constexpr std::int64_t numel = sizeof own / sizeof(int);
  const at::Tensor shard = at::empty({numel}, at::kInt);
  const at::Tensor full = at::empty({group->size * numel}, at::kInt);
  std::memcpy(data_of(shard), &own, sizeof own);
  engine.wait_for_free_tag(*group);
  engine
      .start(std::make_shared<MessageOperation>(group, Operation{CommOp::kAllGather, full, shard}))
      ->wait();
  Traffic sent = all_gather_traffic(full.numel(), full.element_size(), group->size, group->rank);
  sent[CommOp::kAllGather].calls = 0;
  *group->meter -= sent;
  std::vector<ColorAndKey> all(static_cast<std::size_t>(group->size));
  std::memcpy(all.data(), data_of(full), full.nbytes());
  return all;
}

}  // namespace

MessageOperation::MessageOperation(std::shared_ptr<MessageGroup> group, Operation operation)
    : group_(std::move(group)),
      operation_(std::move(operation)),
      messages_(group_->new_messages(operation_.kind)),
      slices_(operation_.tensor, group_->rank, group_->size) {
  if (!operation_.is_barrier() && !operation_.is_message()) number_ = group_->num_started++;
  operation_.is_barrier() ? messages_->barrier() : post();
}

void MessageOperation::post() {
  const at::Tensor& tensor = operation_.tensor;
  const Bytes whole(data_of(tensor), tensor.nbytes());
  switch (operation_.kind) {
    case CommOp::kAllReduce:
      return post_all_to_all(slices_.own().data());
    case CommOp::kReduceScatter:
      return post_all_to_all(data_of(operation_.shard));
    case CommOp::kAllGather: {
      const Bytes own = slices_.own();
      const std::byte* const shard = data_of(operation_.shard);
      if (own.size() > 0 && shard != own.data()) std::memmove(own.data(), shard, own.size());
      return post_gather();
    }
    case CommOp::kBroadcast:
      if (group_->rank != operation_.peer) return receive(whole, operation_.peer);
      for (int peer = 0; peer < group_->size; ++peer) {
        if (peer != group_->rank) send(whole, peer);
      }
      return;
    case CommOp::kSend:
      return send(whole, operation_.peer);
    default:
      return receive(whole, operation_.peer);
  }
}

void MessageOperation::send(Bytes bytes, int peer) {
  messages_->send(channel(), bytes.data(), std::ssize(bytes), peer, tag());
}

void MessageOperation::receive(Bytes bytes, int peer) {
  messages_->receive(channel(), bytes.data(), std::ssize(bytes), peer, tag());
}

void MessageOperation::advance() {
  while (phase_ != Phase::kDone && messages_->test()) {
    const bool is_scattered = phase_ == Phase::kAllToAll && operation_.is_sum();
    if (is_scattered) fold();
    if (is_scattered && operation_.kind == CommOp::kAllReduce) {
      phase_ = Phase::kGather;
      post_gather();
    } else {
      phase_ = Phase::kDone;
    }
  }
}

void MessageOperation::post_all_to_all(std::byte* target) {
  const int rank = group_->rank, size = group_->size;
  target_ = target;
  slices_.make_room();
  for (int peer = 0; peer < size; ++peer) {
    if (peer != rank) receive(slices_.arriving(peer), peer);
  }
  // Each rank starts with its successor, so that no rank receives from all others at once.
  for (int i = 1; i < size; ++i) {
    const int peer = (rank + i) % size;
    send(slices_.slice(peer), peer);
  }
}

void MessageOperation::fold() {
  tree_fold(slices_.pieces(), group_->rank, target_, slices_.dtype(), slices_.own_numel());
  slices_.drop_room();  // before the gather: the peak is the tensor's size, not more
}

void MessageOperation::post_gather() {
  const int rank = group_->rank, size = group_->size;
  for (int i = 1; i < size; ++i) {
    const int peer = (rank + size - i) % size;  // in the order in which they send to this rank
    receive(slices_.slice(peer), peer);
  }
  for (int i = 1; i < size; ++i) send(slices_.own(), (rank + i) % size);
}

// Operations remain only when an exception ends the process. MPI may still write to their tensors,
// so they are never freed.
OperationEngine::~OperationEngine() {
  if (in_flight_.empty()) return;
  static std::mutex mutex;  // of the engines of several threads
  static auto* const abandoned = new std::vector<std::shared_ptr<MessageOperation>>;
  const std::lock_guard lock(mutex);
  abandoned->insert(abandoned->end(), in_flight_.begin(), in_flight_.end());
}

WorkPtr OperationEngine::start(std::shared_ptr<MessageOperation> operation) {
  in_flight_.push_back(operation);
  return std::make_unique<StartedWork>(shared_from_this(), std::move(operation));
}

void OperationEngine::advance() {
  for (const auto& operation : in_flight_) operation->advance();
  std::erase_if(in_flight_, [](const auto& operation) { return operation->is_done(); });
}

void OperationEngine::wait_for(MessageOperation& operation) {
  const Timer timer;
  while (!operation.is_done()) {
    advance();
    if (!operation.is_done()) operation.idle(timer.seconds());
  }
}

void OperationEngine::wait_for_free_tag(const MessageGroup& group) {
  const std::int64_t last_user = group.num_started - group.num_tags;
  for (;;) {
    // Older users too: an old collective may still be in flight on another rank when a newer one is
    // done here.
    const auto user =
        std::find_if(in_flight_.begin(), in_flight_.end(), [&](const auto& operation) {
          return &operation->group() == &group && operation->number() >= 0 &&
                 operation->number() <= last_user && !operation->is_done();
        });
    if (user == in_flight_.end()) return;
    const std::shared_ptr<MessageOperation> operation = *user;
    wait_for(*operation);
  }
}

MessageCommunicator::MessageCommunicator(std::shared_ptr<MessageGroup> group)
    : MessageCommunicator(std::move(group), std::make_shared<OperationEngine>()) {}

MessageCommunicator::MessageCommunicator(std::shared_ptr<MessageGroup> group,
                                         std::shared_ptr<OperationEngine> engine)
    : group_(std::move(group)), engine_(std::move(engine)) {}

WorkPtr MessageCommunicator::start(const Operation& operation) {
  check_operation(operation, *this, Reach::kCpu, group_->num_tags);
  if (!operation.is_message()) engine_->wait_for_free_tag(*group_);
  ++(*group_->meter)[operation.kind].calls;
  return engine_->start(std::make_shared<MessageOperation>(group_, operation));
}

std::unique_ptr<Communicator> MessageCommunicator::split(int color, int key) {
  const std::vector<int> members =
      ranks_of_color(color, gather_colors({color, key}, group_, *engine_));
  const std::shared_ptr<MessageGroup> part = group_->part(color, members);
  if (color < 0) return nullptr;
  part->rank =
      static_cast<int>(std::find(members.begin(), members.end(), rank()) - members.begin());
  part->size = static_cast<int>(members.size());
  part->meter = group_->meter;
  return std::unique_ptr<Communicator>(new MessageCommunicator(part, engine_));
}

}  // namespace ladder
