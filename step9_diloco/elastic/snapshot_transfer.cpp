#include "step9_diloco/elastic/snapshot_transfer.hpp"

#include <algorithm>

#include "common/core/check.hpp"

namespace ladder {
namespace {

constexpr std::int64_t kWindow = 16;  // pieces that are asked for, and not there yet
constexpr double kSilence = 0.1;      // seconds between two signs of life of one that waits

Message request_for(std::int64_t piece, std::int64_t total, const Quorum& quorum, int worker) {
  return {.kind = MessageKind::kRequest,
          .lighthouse_epoch = quorum.lighthouse_epoch,
          .quorum = quorum.id,
          .round = quorum.outer_steps,
          .sender = worker,
          .epoch = quorum.member(worker).epoch,
          .offset = piece * kPieceBytes,
          .total = total};
}

}  // namespace

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

std::set<QuorumNumber> SnapshotServer::quorums() {
  const std::lock_guard lock(mutex_);
  std::set<QuorumNumber> quorums;
  for (const Served& served : served_) quorums.insert(served.quorum.number());
  return quorums;
}

// The last request came when all but a window of pieces were there: each takes as long as the time
// between two requests.
bool SnapshotServer::is_serving(double idle_seconds) {
  const std::lock_guard lock(mutex_);
  return std::ranges::any_of(served_, [&](const Served& served) {
    const double piece_s = served.asked_s / static_cast<double>(served.num_requests + 1);
    const double window_s = 1.5 * static_cast<double>(kWindow) * piece_s;
    return served.since_request.seconds() <= std::max(idle_seconds, window_s);
  });
}

void SnapshotServer::answer(const Message& request, Messenger& messenger) {
  const std::lock_guard lock(mutex_);
  const QuorumNumber number = {request.lighthouse_epoch, request.quorum};
  const auto found = std::ranges::find(served_, number,
                                       [](const Served& served) { return served.quorum.number(); });
  if (found == served_.end()) return;
  Served& served = *found;
  const Quorum& quorum = served.quorum;
  const std::vector<Member> receivers = quorum.receivers(worker_);
  const auto member = std::ranges::find_if(receivers, [&](const Member& candidate) {
    return candidate.worker == request.sender && candidate.epoch == request.epoch;
  });
  if (member == receivers.end() || request.total != served.snapshot.num_bytes) return;
  served.since_request.restart();
  served.asked_s = served.since_start.seconds();
  ++served.num_requests;
  const std::string_view bytes(served.snapshot.bytes.get(),
                               static_cast<std::size_t>(served.snapshot.num_bytes));
  messenger.send(member->address,
                 {.kind = MessageKind::kState,
                  .lighthouse_epoch = quorum.lighthouse_epoch,
                  .quorum = quorum.id,
                  .round = quorum.outer_steps,
                  .sender = worker_,
                  .epoch = quorum.member(worker_).epoch,
                  .offset = request.offset,
                  .total = request.total,
                  .payload = bytes.substr(static_cast<std::size_t>(request.offset), kPieceBytes)});
}

bool heal(const Quorum& quorum, int worker, const WorkerState& state, Messenger& messenger,
          Mailbox& mailbox, double seconds, const std::function<bool()>& goes_on, const Log& log) {
  const Member& donor = quorum.member(*quorum.member(worker).donor);
  const std::int64_t total = snapshot_bytes(state);
  const std::int64_t num_pieces = (total + kPieceBytes - 1) / kPieceBytes;
  log(concat("heals from worker ", donor.worker, ": ", total, " bytes of quorum ", quorum.id));
  const auto ask_for = [&](std::int64_t piece) {
    messenger.send(donor.address, request_for(piece, total, quorum, worker));
  };
  Timer since_piece, since_request;
  std::int64_t num_there = 0, num_asked = 0;
  while (num_there < num_pieces && since_piece.seconds() < seconds && goes_on()) {
    const std::int64_t end = num_there == 0 ? 1 : std::min(num_pieces, num_there + kWindow);
    while (num_asked < end) ask_for(num_asked++);
    const double silence_s = std::min(since_piece.seconds(), since_request.seconds());
    if (silence_s > (num_there == 0 ? kSilence : seconds / 4)) {
      for (std::int64_t piece = 0; piece < num_asked; ++piece)
        if (!mailbox.has_piece(MessageKind::kState, donor.worker, piece)) ask_for(piece);
      since_request.restart();
    }
    const std::int64_t known = num_there;
    num_there = mailbox.await_pieces(MessageKind::kState, donor.worker, known,
                                     std::min(seconds / 4, kSilence));
    if (num_there > known) since_piece.restart();
  }
  const std::optional<InFlightBuffer> snapshot =
      mailbox.take(MessageKind::kState, donor.worker, total, 0);
  const std::string fault = snapshot ? fault_of(*snapshot, donor, state)
                            : since_piece.seconds() < seconds
                                ? "this worker is asked to stop"
                                : concat("nothing has arrived for ", seconds, " s");
  if (fault.empty()) adopt_snapshot(*snapshot, state);
  log(fault.empty() ? concat("has healed from worker ", donor.worker)
                    : concat("could not heal from worker ", donor.worker, ": ", fault));
  return fault.empty();
}

}  // namespace ladder
