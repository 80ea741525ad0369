#include "common/comm/tracing_communicator.hpp"

#include <ATen/ops/full.h>

#include <fstream>
#include <limits>
#include <utility>

#include "common/comm/known_arrival.hpp"
#include "common/comm/members.hpp"
#include "common/comm/traffic_theory.hpp"
#include "common/comm/work_then.hpp"
#include "common/core/check.hpp"

namespace ladder {
namespace {

class TracedWork final : public WorkThen {
 public:
  // `message`: the inner work, if its arrival is known; or null.
  TracedWork(WorkPtr inner, const KnownArrival* message, TraceLog& log,
             const TracedOperation& operation)
      : WorkThen(std::move(inner), [this] { add_to_log(); }),
        message_(message),
        log_(log),
        operation_(operation) {}

  void wait() override {
    operation_.wait_begin_ns = trace_now_ns();
    log_.note_memory(operation_.wait_begin_ns);
    WorkThen::wait();
  }

 private:
  void add_to_log() {
    operation_.end_ns = trace_now_ns();
    if (message_ != nullptr) operation_.arrival_ns = message_->arrival_ns();
    log_.add(operation_);
  }

  const KnownArrival* message_;
  TraceLog& log_;
  TracedOperation operation_;
};

constexpr int kRoundTrips = 16;
constexpr int kTag = 0;

void tell_time(Communicator& comm, int rank, const std::function<std::int64_t()>& now_ns) {
  const at::Tensor time = at::full({1}, 0, at::kLong);
  for (int i = 0; i < kRoundTrips; ++i) {
    comm.recv(time, rank, kTag)->wait();
    *time.mutable_data_ptr<std::int64_t>() = now_ns();
    comm.send(time, rank, kTag)->wait();
  }
}

ClockReading ask_time(Communicator& comm, const std::function<std::int64_t()>& now_ns) {
  ClockReading best = {.error_ns = std::numeric_limits<std::int64_t>::max()};
  const at::Tensor time = at::full({1}, 0, at::kLong);
  for (int i = 0; i < kRoundTrips; ++i) {
    const std::int64_t begin_ns = now_ns();
    comm.send(time, /*peer=*/0, kTag)->wait();
    comm.recv(time, /*peer=*/0, kTag)->wait();
    const std::int64_t half_ns = (now_ns() - begin_ns + 1) / 2;
    if (half_ns >= best.error_ns) continue;
    const std::int64_t at_ns = begin_ns + half_ns;
    best = {at_ns, at_ns - *time.const_data_ptr<std::int64_t>(), half_ns};
  }
  return best;
}

}  // namespace

TracingCommunicator::TracingCommunicator(std::unique_ptr<Communicator> inner, TraceLog& log)
    : ForwardingCommunicator(std::move(inner)),
      log_(log),
      members_(world_members(size())),
      name_("world"),
      names_(std::make_shared<GroupNames>()) {}

TracingCommunicator::TracingCommunicator(std::unique_ptr<Communicator> inner, TraceLog& log,
                                         std::vector<int> members, const char* name,
                                         std::shared_ptr<GroupNames> names)
    : ForwardingCommunicator(std::move(inner)),
      log_(log),
      members_(std::move(members)),
      name_(name),
      names_(std::move(names)) {}

TracedOperation TracingCommunicator::describe(const Operation& operation) {
  TracedOperation traced = {.kind = to_string(operation.kind), .group = name_};
  if (const Span* const span = log_.innermost()) {
    traced.label = span->name();
    traced.label_number = span->first();
  }
  if (operation.is_message()) {
    const int peer = members_.at(static_cast<std::size_t>(operation.peer));
    const int own = members_[static_cast<std::size_t>(rank())];
    const bool is_send = operation.kind == CommOp::kSend;
    traced.sender = is_send ? own : peer;
    traced.receiver = is_send ? peer : own;
    traced.tag = operation.tag;
    traced.number = num_messages_[{operation.kind, operation.peer, operation.tag}]++;
  } else {
    traced.number = num_collectives_++;
  }
  if (!operation.is_barrier()) {
    traced.bytes = static_cast<std::int64_t>(operation.tensor.nbytes());
    traced.sent_bytes = traffic_of(operation, size(), rank()).bytes_sent();
  }
  return traced;
}

WorkPtr TracingCommunicator::start(const Operation& operation) {
  const std::int64_t begin_ns = trace_now_ns();
  WorkPtr work = inner_.start(operation);  // first: one that is refused is no operation
  TracedOperation traced = describe(operation);
  traced.begin_ns = begin_ns;
  const auto* const message = dynamic_cast<const KnownArrival*>(work.get());
  return std::make_unique<TracedWork>(std::move(work), message, log_, traced);
}

std::unique_ptr<Communicator> TracingCommunicator::split(int color, int key) {
  std::unique_ptr<Communicator> part = inner_.split(color, key);
  if (part == nullptr) return nullptr;
  std::vector<int> members = members_of(*part, members_[static_cast<std::size_t>(rank())]);
  std::string name = "ranks";
  for (const int member : members) name += concat(" ", member);
  // These ranks have made the same groups of just them, so they count alike.
  const int number = ++(*names_)[name];
  if (number > 1) name += concat(" #", number);
  return std::unique_ptr<Communicator>(
      new TracingCommunicator(std::move(part), log_, std::move(members), log_.keep(name), names_));
}

// Containers on one machine share it, as they share the clock.
std::string machine_id() {
  std::string id;
  std::ifstream("/proc/sys/kernel/random/boot_id") >> id;
  return id;
}

ClockReading compare_clocks(Communicator& comm, const std::string& machine,
                            const std::function<std::int64_t()>& now_ns) {
  const std::vector<std::string> machines = all_gather_text(machine, comm);
  ClockReading clock;
  for (int rank = 1; rank < comm.size(); ++rank) {
    const std::string& other = machines[static_cast<std::size_t>(rank)];
    if (!other.empty() && other == machines[0]) continue;
    if (comm.rank() == 0) tell_time(comm, rank, now_ns);
    if (comm.rank() == rank) clock = ask_time(comm, now_ns);
  }
  return clock;
}

}  // namespace ladder
