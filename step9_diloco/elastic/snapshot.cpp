#include "step9_diloco/elastic/snapshot.hpp"

#include <algorithm>
#include <cstring>
#include <functional>
#include <utility>

#include "common/core/byte_hash.hpp"
#include "common/core/check.hpp"
#include "common/core/timer.hpp"

namespace ladder {
namespace {

constexpr double kSilence = 0.1;  // seconds between two signs of life of one that waits

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

std::string hash_of_shared(const WorkerState& state,
                           const std::function<const void*(const at::Tensor&)>& bytes_of) {
  ByteHash hash;
  for (const NamedTensor& named : state.shared) {
    const std::string head = concat(named.name, " ", named.tensor.numel(), ";");
    hash.update(head.data(), head.size());
    hash.update(bytes_of(named.tensor), named.tensor.nbytes());
  }
  return hash.digest();
}

std::vector<std::int64_t> counters_in(const std::string& snapshot, const WorkerState& state) {
  std::vector<std::int64_t> counters = state.counters();
  std::memcpy(counters.data(), snapshot.data(), 8 * counters.size());
  return counters;
}

}  // namespace

std::string shared_hash(const WorkerState& state) {
  return hash_of_shared(state, [](const at::Tensor& tensor) { return tensor.const_data_ptr(); });
}

std::int64_t snapshot_bytes(const WorkerState& state) {
  std::size_t sum = 8 * state.counters().size();
  for (const at::Tensor& tensor : tensors_of(state)) sum += tensor.nbytes();
  return static_cast<std::int64_t>(sum);
}

std::string take_snapshot(const WorkerState& state) {
  std::string snapshot;
  snapshot.reserve(static_cast<std::size_t>(snapshot_bytes(state)));
  const auto add = [&](const void* bytes, std::size_t num_bytes) {
    if (num_bytes > 0) snapshot.append(static_cast<const char*>(bytes), num_bytes);
  };
  const std::vector<std::int64_t> counters = state.counters();
  add(counters.data(), 8 * counters.size());
  for (const at::Tensor& tensor : tensors_of(state)) add(tensor.const_data_ptr(), tensor.nbytes());
  return snapshot;
}

std::string fault_of(const std::string& snapshot, const Member& donor, const WorkerState& state) {
  if (std::ssize(snapshot) != snapshot_bytes(state))
    return concat("it has ", snapshot.size(), " bytes, not ", snapshot_bytes(state));
  const std::vector<std::int64_t> counters = counters_in(snapshot, state);
  if (counters.front() != donor.outer_steps)
    return concat("it is of outer step ", counters.front(), ", not ", donor.outer_steps);
  for (const std::int64_t counter : counters)
    if (counter < 0 || counter > kMostCount) return concat("it counts ", counter, " steps");
  const char* next = snapshot.data() + 8 * counters.size();
  const std::string hash = hash_of_shared(
      state, [&](const at::Tensor& tensor) { return std::exchange(next, next + tensor.nbytes()); });
  if (hash == donor.state_hash) return "";
  return concat("its parameters have the hash ", hash, ", the quorum says ", donor.state_hash);
}

void adopt_snapshot(const std::string& snapshot, const WorkerState& state) {
  const std::vector<std::int64_t> counters = counters_in(snapshot, state);
  const char* next = snapshot.data() + 8 * counters.size();
  for (const at::Tensor& tensor : tensors_of(state)) {
    if (tensor.nbytes() > 0) std::memcpy(tensor.mutable_data_ptr(), next, tensor.nbytes());
    next += tensor.nbytes();
  }
  state.set_counters(counters);
}

bool heal(const Quorum& quorum, int worker, const WorkerState& state, Mailbox& mailbox,
          double seconds, const std::function<bool()>& goes_on, const Log& log) {
  const Member& donor = quorum.member(*quorum.member(worker).donor);
  const std::int64_t total = snapshot_bytes(state);
  const std::int64_t num_pieces = (total + kPieceBytes - 1) / kPieceBytes;
  log(concat("heals from worker ", donor.worker, ": ", total, " bytes of quorum ", quorum.id));
  Timer since_piece;
  std::int64_t num_there = 0;
  while (num_there < num_pieces && since_piece.seconds() < seconds && goes_on()) {
    const std::int64_t known = num_there;
    num_there = mailbox.await_pieces(MessageKind::kState, donor.worker, known,
                                     std::min(seconds / 4, kSilence));
    if (num_there > known) since_piece.restart();
  }
  const std::optional<std::string> snapshot =
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
