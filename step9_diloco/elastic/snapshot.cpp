#include "step9_diloco/elastic/snapshot.hpp"

#include <algorithm>
#include <cstring>

#include "common/core/byte_hash.hpp"
#include "common/core/check.hpp"

namespace ladder {
namespace {

constexpr std::size_t kHashBytes = 32;
constexpr std::int64_t kWindow = 16;  // pieces asked for and not there yet
constexpr double kFirstRetry = 0.004,
                 kLastRetry = 0.2;  // seconds without a piece; then it is asked
                                    // for again

std::vector<at::Tensor> tensors_of(const WorkerState& state) {
  std::vector<at::Tensor> tensors;
  for (const auto* list : {&state.shared, &state.own})
    for (const NamedTensor& named : *list) {
      check(named.tensor.is_contiguous() && named.tensor.is_cpu(), named.name,
            " must be contiguous and on the CPU");
      tensors.push_back(named.tensor);
    }
  return tensors;
}

std::string hash_of(const InFlightBuffer& snapshot) {
  ByteHash hash;
  hash.update(snapshot.bytes.get(), static_cast<std::size_t>(snapshot.num_bytes) - kHashBytes);
  return hash.digest();
}

}  // namespace

std::string shared_hash(const WorkerState& state) {
  ByteHash hash;
  for (const NamedTensor& named : state.shared) {
    const std::string head = concat(named.name, " ", named.tensor.numel(), ";");
    hash.update(head.data(), head.size());
    hash.update(named.tensor.const_data_ptr(), named.tensor.nbytes());
  }
  return hash.digest();
}

std::int64_t snapshot_bytes(const WorkerState& state) {
  std::size_t sum = 8 * state.counters().size() + kHashBytes;
  for (const at::Tensor& tensor : tensors_of(state)) sum += tensor.nbytes();
  return static_cast<std::int64_t>(sum);
}

InFlightBuffer take_snapshot(const WorkerState& state) {
  InFlightBuffer snapshot;
  snapshot.num_bytes = snapshot_bytes(state);
  snapshot.bytes.reset(new char[static_cast<std::size_t>(snapshot.num_bytes)]);
  char* end = snapshot.bytes.get();
  const auto add = [&end](const void* bytes, std::size_t num_bytes) {
    if (num_bytes > 0) std::memcpy(end, bytes, num_bytes);
    end += num_bytes;
  };
  const std::vector<std::int64_t> counters = state.counters();
  add(counters.data(), 8 * counters.size());
  for (const at::Tensor& tensor : tensors_of(state)) add(tensor.const_data_ptr(), tensor.nbytes());
  add(hash_of(snapshot).data(), kHashBytes);
  return snapshot;
}

bool adopt_snapshot(const InFlightBuffer& snapshot, const WorkerState& state) {
  if (snapshot.num_bytes != snapshot_bytes(state)) return false;
  const char* const end = snapshot.bytes.get() + snapshot.num_bytes;
  if (hash_of(snapshot) != std::string_view(end - kHashBytes, kHashBytes)) return false;
  std::vector<std::int64_t> counters = state.counters();
  const char* next = snapshot.bytes.get();
  std::memcpy(counters.data(), next, 8 * counters.size());
  next += 8 * counters.size();
  for (const at::Tensor& tensor : tensors_of(state)) {
    if (tensor.nbytes() > 0) std::memcpy(tensor.mutable_data_ptr(), next, tensor.nbytes());
    next += tensor.nbytes();
  }
  state.set_counters(counters);
  return true;
}

void SnapshotServer::serve(const Quorum& quorum, InFlightBuffer snapshot) {
  const std::lock_guard lock(mutex_);
  served_.push_back({quorum, std::move(snapshot), Timer()});
}

void SnapshotServer::forget(const Quorum& later, double seconds) {
  const std::lock_guard lock(mutex_);
  const auto asks_again = [&](const Member& member) {
    return std::ranges::find(later.members, member.worker, &Member::worker) != later.members.end();
  };
  std::erase_if(served_, [&](const Served& served) {
    return served.since_request.seconds() > seconds ||
           std::ranges::all_of(served.quorum.receivers(worker_), asks_again);
  });
}

std::set<std::string> SnapshotServer::addresses() {
  const std::lock_guard lock(mutex_);
  std::set<std::string> addresses;
  for (const Served& served : served_)
    for (const Member& member : served.quorum.receivers(worker_)) addresses.insert(member.address);
  return addresses;
}

bool SnapshotServer::is_serving(double idle_seconds) {
  const std::lock_guard lock(mutex_);
  return std::ranges::any_of(served_, [&](const Served& served) {
    return served.since_request.seconds() <= idle_seconds;
  });
}

void SnapshotServer::answer(const Message& request, Messenger& messenger) {
  const std::lock_guard lock(mutex_);
  for (Served& served : served_) {
    const Quorum& quorum = served.quorum;
    if (quorum.lighthouse_epoch != request.lighthouse_epoch || quorum.id != request.quorum)
      continue;
    const auto asks = [&](const Member& member) {
      return member.worker == request.sender && member.epoch == request.epoch;
    };
    const std::vector<Member> receivers = quorum.receivers(worker_);
    const auto member = std::ranges::find_if(receivers, asks);
    if (member == receivers.end() || request.total != served.snapshot.num_bytes) continue;
    served.since_request.restart();
    const std::string_view bytes(served.snapshot.bytes.get(),
                                 static_cast<std::size_t>(served.snapshot.num_bytes));
    messenger.send(member->address, {.kind = MessageKind::kState,
                                     .lighthouse_epoch = quorum.lighthouse_epoch,
                                     .quorum = quorum.id,
                                     .round = quorum.outer_steps,
                                     .sender = worker_,
                                     .epoch = quorum.member(worker_).epoch,
                                     .offset = request.offset,
                                     .total = request.total,
                                     .payload = bytes.substr(
                                         static_cast<std::size_t>(request.offset), kPieceBytes)});
  }
}

bool heal(const Quorum& quorum, int worker, const WorkerState& state, Messenger& messenger,
          Mailbox& mailbox, double seconds, const std::function<void()>& note_progress,
          const Log& log) {
  const Member& donor = quorum.member(*quorum.member(worker).donor);
  const std::int64_t total = snapshot_bytes(state);
  const std::int64_t num_pieces = (total + kPieceBytes - 1) / kPieceBytes;
  log(concat("heals from worker ", donor.worker, ": ", total, " bytes of quorum ", quorum.id));
  Timer since_piece;
  Mailbox::Progress progress;
  std::int64_t next = 0;         // to ask for
  double retry_s = kFirstRetry;  // the donor may be about to learn of the quorum
  while (progress.num_pieces < num_pieces && since_piece.seconds() < seconds) {
    const std::int64_t window = progress.num_pieces == 0 ? 1 : kWindow;  // is the donor ready?
    for (; next < num_pieces && next < progress.num_pieces + window; ++next) {
      messenger.send(donor.address, {.kind = MessageKind::kRequest,
                                     .lighthouse_epoch = quorum.lighthouse_epoch,
                                     .quorum = quorum.id,
                                     .round = quorum.outer_steps,
                                     .sender = worker,
                                     .epoch = quorum.member(worker).epoch,
                                     .offset = next * kPieceBytes,
                                     .total = total});
    }
    const std::int64_t known = progress.num_pieces;
    progress = mailbox.await_pieces(MessageKind::kState, donor.worker, known, retry_s);
    note_progress();
    if (progress.num_pieces > known) {
      since_piece.restart();
    } else {
      next = progress.first_missing;  // the donor was not ready yet, or a piece was damaged
      retry_s = std::min(2 * retry_s, kLastRetry);
    }
  }
  const std::optional<InFlightBuffer> snapshot =
      mailbox.take(MessageKind::kState, donor.worker, total, 0);
  const bool is_healed = snapshot && adopt_snapshot(*snapshot, state);
  log(concat(is_healed ? "has healed from worker " : "could not heal from worker ", donor.worker));
  return is_healed;
}

}  // namespace ladder
