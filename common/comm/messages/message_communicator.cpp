#include "common/comm/messages/message_communicator.hpp"

#include <ATen/ops/empty.h>

#include <algorithm>
#include <cstring>
#include <mutex>
#include <utility>
#include <vector>

#include "common/comm/argument_checks.hpp"
#include "common/comm/forwarding_communicator.hpp"
#include "common/comm/traffic_theory.hpp"
#include "common/comm/tree_fold.hpp"
#include "common/core/check.hpp"
#include "common/core/memory_ledger.hpp"
#include "common/core/timer.hpp"

namespace ladder {
namespace {

std::size_t as_index(int number) {
  return static_cast<std::size_t>(number);
}

}  // namespace

// One started operation: a small state machine, since messages make no progress by themselves.
//
//   all_reduce      scatter here → fold → scatter outside → fold → gather outside → gather here
//   reduce_scatter  scatter here → fold → scatter outside → fold
//   all_gather      gather outside → gather here
//   all others      one round
//
// "Here" are the ranks of this machine, "outside" those with the same place on others
// (machines.hpp). On one machine, nobody is outside. In a scatter every rank sends slice r of its
// tensor to rank r, or to the one here that has r's place; it folds the slices (tree_fold.hpp), and
// what it then has for ranks outside is the sum of its machine. In the gather, the sums go the other
// way. All messages of a round are in flight at once. All rounds use the operation's one tag:
// between two ranks, messages with one tag keep their order, and all ranks post the rounds in the
// same order.
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
  enum class Phase { kScatterHere, kScatterOutside, kGatherOutside, kGatherHere, kOnly, kDone };
  using Bytes = RankSlices::Bytes;
  Channel channel() const {
    return operation_.is_message() ? Channel::kPointToPoint : Channel::kCollectives;
  }
  int tag() const { return operation_.is_message() ? operation_.tag : group_->tag_of(number_); }
  void send(Bytes bytes, int peer);
  void receive(Bytes bytes, int peer);
  void post();
  void scatter_here();
  void fold_here();
  void scatter_outside();
  void fold_outside();
  void gather_outside();
  void gather_here();
  void make_room();

  // The others in the order in which this rank sends to them: each rank starts with its successor,
  // so that no rank receives from all others at once.
  template <class Act>
  void for_others_here(const Act& act) const;  // act(place)
  template <class Act>
  void for_others_outside(const Act& act) const;  // act(machine)
  int rank_here(int place) const { return grid_.rank_of(machine_, place); }
  int rank_outside(int machine) const { return grid_.rank_of(machine, place_); }
  Bytes slice_for(int machine) const { return slices_.slice(rank_outside(machine)); }

  std::shared_ptr<MessageGroup> group_;
  Operation operation_;
  Phase phase_ = Phase::kOnly;
  std::int64_t number_ = -1;
  std::unique_ptr<Messages> messages_;
  MachineGrid grid_;
  int machine_, place_;          // of this rank
  RankSlices slices_;            // of the tensor
  std::byte* target_ = nullptr;  // receives the sum of this rank's slice
  // Of the slice of each rank with this place, by machine: the pieces of all ranks here, and where
  // their sum goes. Then, of this rank's own slice, the sums of all machines.
  std::vector<std::vector<std::byte*>> pieces_here_;
  std::vector<std::byte*> sums_here_, sums_of_machines_;
  at::Tensor room_;  // for what arrives
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
  Traffic sent = all_gather_traffic(full.numel(), full.element_size(), group->size, group->rank,
                                    group->machines);
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
      grid_(group_->machines.grid(group_->size)),
      machine_(grid_.machine_of(group_->rank)),
      place_(grid_.place_of(group_->rank)),
      slices_(operation_.tensor, group_->rank, group_->size) {
  if (!operation_.is_barrier() && !operation_.is_message()) number_ = group_->num_started++;
  operation_.is_barrier() ? messages_->barrier() : post();
}

void MessageOperation::post() {
  const at::Tensor& tensor = operation_.tensor;
  const Bytes whole(data_of(tensor), tensor.nbytes());
  switch (operation_.kind) {
    case CommOp::kAllReduce:
      target_ = slices_.own().data();
      return scatter_here();
    case CommOp::kReduceScatter:
      target_ = data_of(operation_.shard);
      return scatter_here();
    case CommOp::kAllGather: {
      const Bytes own = slices_.own();
      const std::byte* const shard = data_of(operation_.shard);
      if (own.size() > 0 && shard != own.data()) std::memmove(own.data(), shard, own.size());
      return gather_outside();
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
    switch (phase_) {
      case Phase::kScatterHere:
        fold_here();
        scatter_outside();
        break;
      case Phase::kScatterOutside:
        fold_outside();
        phase_ = Phase::kDone;
        if (operation_.kind == CommOp::kAllReduce) gather_outside();
        break;
      case Phase::kGatherOutside:
        gather_here();
        break;
      default:
        phase_ = Phase::kDone;
    }
  }
}

template <class Act>
void MessageOperation::for_others_here(const Act& act) const {
  for (int i = 1; i < grid_.per_machine; ++i) act((place_ + i) % grid_.per_machine);
}

template <class Act>
void MessageOperation::for_others_outside(const Act& act) const {
  for (int i = 1; i < grid_.num_machines; ++i) act((machine_ + i) % grid_.num_machines);
}

void MessageOperation::make_room() {
  const MemoryScope scope(MemoryCategory::kCommunication);
  const int num_machines = grid_.num_machines, per_machine = grid_.per_machine;
  std::int64_t numel = (num_machines - 1) * slices_.own_numel();
  for (int machine = 0; machine < num_machines; ++machine)
    numel += (per_machine - 1) * slices_.numel(rank_outside(machine));
  room_ = at::empty({numel}, operation_.tensor.options());
  std::byte* free = data_of(room_);
  for (int machine = 0; machine < num_machines; ++machine) {
    const Bytes own = slice_for(machine);
    std::vector<std::byte*>& pieces = pieces_here_.emplace_back();
    for (int place = 0; place < per_machine; ++place)
      pieces.push_back(place == place_ ? own.data() : std::exchange(free, free + own.size()));
    // A reduce_scatter only reads its tensor: a sum for outside takes the place of a piece.
    sums_here_.push_back(num_machines == 1                           ? target_
                         : operation_.kind == CommOp::kReduceScatter ? pieces[place_ == 0 ? 1 : 0]
                                                                     : own.data());
  }
  const std::size_t own_bytes = slices_.own().size();
  for (int machine = 0; machine < num_machines; ++machine)
    sums_of_machines_.push_back(machine == machine_ ? sums_here_[as_index(machine)]
                                                    : std::exchange(free, free + own_bytes));
}

void MessageOperation::scatter_here() {
  phase_ = Phase::kScatterHere;
  make_room();
  for_others_here([&](int place) {
    for (int machine = 0; machine < grid_.num_machines; ++machine)
      receive({pieces_here_[as_index(machine)][as_index(place)], slice_for(machine).size()},
              rank_here(place));
  });
  for_others_here([&](int place) {
    for (int machine = 0; machine < grid_.num_machines; ++machine)
      send(slices_.slice(grid_.rank_of(machine, place)), rank_here(place));
  });
}

void MessageOperation::fold_here() {
  for (int machine = 0; machine < grid_.num_machines; ++machine)
    tree_fold(pieces_here_[as_index(machine)], place_, sums_here_[as_index(machine)],
              slices_.dtype(), slices_.numel(rank_outside(machine)));
}

void MessageOperation::scatter_outside() {
  phase_ = Phase::kScatterOutside;
  for_others_outside([&](int machine) {
    receive({sums_of_machines_[as_index(machine)], slices_.own().size()}, rank_outside(machine));
  });
  for_others_outside([&](int machine) {
    send({sums_here_[as_index(machine)], slice_for(machine).size()}, rank_outside(machine));
  });
}

void MessageOperation::fold_outside() {
  if (grid_.num_machines > 1)
    tree_fold(sums_of_machines_, machine_, target_, slices_.dtype(), slices_.own_numel());
  room_.reset();  // before the gather: the peak is the tensor's size, not more
}

void MessageOperation::gather_outside() {
  phase_ = Phase::kGatherOutside;
  for_others_outside([&](int machine) { receive(slice_for(machine), rank_outside(machine)); });
  for_others_outside([&](int machine) { send(slices_.own(), rank_outside(machine)); });
}

void MessageOperation::gather_here() {
  phase_ = Phase::kGatherHere;
  for_others_here([&](int place) {
    for (int machine = 0; machine < grid_.num_machines; ++machine)
      receive(slices_.slice(grid_.rank_of(machine, place)), rank_here(place));
  });
  for_others_here([&](int place) {
    for (int machine = 0; machine < grid_.num_machines; ++machine)
      send(slice_for(machine), rank_here(place));
  });
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

void place_on(const Machines& machines, Communicator& comm) {
  if (comm.size() == 1) return;
  auto* const of_messages = find_communicator<MessageCommunicator>(comm);
  check(of_messages != nullptr, "ranks are placed on machines where they send messages");
  of_messages->group_->machines = machines;
}

std::unique_ptr<Communicator> MessageCommunicator::split(int color, int key) {
  const std::vector<int> members =
      ranks_of_color(color, gather_colors({color, key}, group_, *engine_));
  const std::shared_ptr<MessageGroup> part = group_->part(color, members);
  if (color < 0) return nullptr;
  part->rank =
      static_cast<int>(std::find(members.begin(), members.end(), rank()) - members.begin());
  part->size = static_cast<int>(members.size());
  part->machines = group_->machines.of_part(members);
  part->meter = group_->meter;
  return std::unique_ptr<Communicator>(new MessageCommunicator(part, engine_));
}

}  // namespace ladder
