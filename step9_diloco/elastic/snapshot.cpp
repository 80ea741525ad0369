#include "step9_diloco/elastic/snapshot.hpp"

#include <cstring>
#include <functional>
#include <utility>

#include "common/core/byte_hash.hpp"
#include "common/core/check.hpp"

namespace ladder {
namespace {

constexpr std::size_t kHashBytes = 32;
constexpr std::int64_t kMaxCounter = std::int64_t{1} << 40;  // no run takes so many steps
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

std::vector<std::int64_t> counters_in(const InFlightBuffer& snapshot, const WorkerState& state) {
  std::vector<std::int64_t> counters = state.counters();
  std::memcpy(counters.data(), snapshot.bytes.get(), 8 * counters.size());
  return counters;
}

}  // namespace

std::string shared_hash(const WorkerState& state) {
  return hash_of_shared(state, [](const at::Tensor& tensor) { return tensor.const_data_ptr(); });
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

std::string fault_of(const InFlightBuffer& snapshot, const Member& donor,
                     const WorkerState& state) {
  if (snapshot.num_bytes != snapshot_bytes(state))
    return concat("it has ", snapshot.num_bytes, " bytes, not ", snapshot_bytes(state));
  const char* const end = snapshot.bytes.get() + snapshot.num_bytes;
  if (hash_of(snapshot) != std::string_view(end - kHashBytes, kHashBytes)) return "it is damaged";
  const std::vector<std::int64_t> counters = counters_in(snapshot, state);
  if (counters.front() != donor.outer_steps)
    return concat("it is of outer step ", counters.front(), ", not ", donor.outer_steps);
  for (const std::int64_t counter : counters)
    if (counter < 0 || counter > kMaxCounter) return concat("it counts ", counter, " steps");
  const char* next = snapshot.bytes.get() + 8 * counters.size();
  const std::string hash = hash_of_shared(
      state, [&](const at::Tensor& tensor) { return std::exchange(next, next + tensor.nbytes()); });
  if (hash == donor.state_hash) return "";
  return concat("its parameters have the hash ", hash, ", the quorum says ", donor.state_hash);
}

void adopt_snapshot(const InFlightBuffer& snapshot, const WorkerState& state) {
  const std::vector<std::int64_t> counters = counters_in(snapshot, state);
  const char* next = snapshot.bytes.get() + 8 * counters.size();
  for (const at::Tensor& tensor : tensors_of(state)) {
    if (tensor.nbytes() > 0) std::memcpy(tensor.mutable_data_ptr(), next, tensor.nbytes());
    next += tensor.nbytes();
  }
  state.set_counters(counters);
}

}  // namespace ladder
