// The bytes are a snapshot. The first one says what is made right before it is judged: its length,
// and what the quorum says of its donor.
#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>

#include "step9_diloco/elastic/snapshot.hpp"
#include "tests/fuzz/fuzz_input.hpp"

namespace ladder {
namespace {

constexpr std::size_t kNumCounters = 3;

struct SmallWorker {
  at::Tensor shared = at::zeros({5}), own = at::full({3}, 1, at::kFloat);
  std::vector<std::int64_t> counters = std::vector<std::int64_t>(kNumCounters, 7);

  WorkerState state() {
    return {.shared = {{"shared", shared}},
            .own = {{"own", own}},
            .outer_steps = [this] { return counters[0]; },
            .counters = [this] { return counters; },
            .set_counters = [this](const std::vector<std::int64_t>& values) { counters = values; }};
  }
};

// The worker's donor, if the quorum knows these outer steps and this shared tensor.
Member donor_of(std::string_view bytes) {
  SmallWorker donor;
  FuzzBytes rest(reinterpret_cast<const std::uint8_t*>(bytes.data()), bytes.size());
  const auto outer_steps = rest.take<std::int64_t>();
  rest.take_bytes(8 * (kNumCounters - 1));
  for (std::int64_t i = 0; i < 5; ++i) donor.shared.data_ptr<float>()[i] = rest.take<float>();
  return {.outer_steps = outer_steps, .state_hash = shared_hash(donor.state())};
}

}  // namespace
}  // namespace ladder

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* bytes, std::size_t size) {
  using namespace ladder;
  FuzzBytes input(bytes, size);
  const auto how = input.take<std::uint8_t>();
  SmallWorker worker;
  const WorkerState state = worker.state();
  const auto num_bytes = static_cast<std::size_t>(snapshot_bytes(state));
  const std::string_view body = input.take_bytes((how & 4) != 0 ? num_bytes : size);
  const std::string snapshot(body);
  const Member donor = (how & 2) != 0 ? donor_of(body) : Member{};
  if (!fault_of(snapshot, donor, state).empty()) return 0;
  adopt_snapshot(snapshot, state);
  must_hold(worker.counters[0] == donor.outer_steps && shared_hash(state) == donor.state_hash);
  for (const std::int64_t counter : worker.counters)
    must_hold(0 <= counter && counter <= std::int64_t{1} << 40);
  must_hold(take_snapshot(state) == snapshot);
  return 0;
}
