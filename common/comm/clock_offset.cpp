#include "common/comm/clock_offset.hpp"

#include <ATen/ops/full.h>

#include <fstream>
#include <limits>
#include <vector>

#include "common/comm/gather_text.hpp"

namespace ladder {
namespace {

constexpr int kRoundTrips = 16;
constexpr int kTag = 0;

void answer(Communicator& comm, int rank, const std::function<std::int64_t()>& now_ns) {
  const at::Tensor time = at::full({1}, 0, at::kLong);
  for (int i = 0; i < kRoundTrips; ++i) {
    comm.recv(time, rank, kTag)->wait();
    *time.mutable_data_ptr<std::int64_t>() = now_ns();
    comm.send(time, rank, kTag)->wait();
  }
}

TraceClock ask(Communicator& comm, const std::function<std::int64_t()>& now_ns) {
  TraceClock best = {.error_ns = std::numeric_limits<std::int64_t>::max()};
  const at::Tensor time = at::full({1}, 0, at::kLong);
  for (int i = 0; i < kRoundTrips; ++i) {
    const std::int64_t begin_ns = now_ns();
    comm.send(time, /*peer=*/0, kTag)->wait();
    comm.recv(time, /*peer=*/0, kTag)->wait();
    const std::int64_t half_ns = (now_ns() - begin_ns + 1) / 2;
    if (half_ns >= best.error_ns) continue;
    best = {begin_ns + half_ns - *time.const_data_ptr<std::int64_t>(), half_ns};
  }
  return best;
}

}  // namespace

// Containers on one machine share it, as they share the clock.
std::string machine_id() {
  std::string id;
  std::ifstream("/proc/sys/kernel/random/boot_id") >> id;
  return id;
}

TraceClock measure_clock_offset(Communicator& comm, const std::string& machine,
                                const std::function<std::int64_t()>& now_ns) {
  const std::vector<std::string> machines = all_gather_text(machine, comm);
  TraceClock clock;
  for (int rank = 1; rank < comm.size(); ++rank) {
    const std::string& other = machines[static_cast<std::size_t>(rank)];
    if (!other.empty() && other == machines[0]) continue;
    if (comm.rank() == 0) answer(comm, rank, now_ns);
    if (comm.rank() == rank) clock = ask(comm, now_ns);
  }
  return clock;
}

}  // namespace ladder
