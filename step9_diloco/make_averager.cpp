#include "step9_diloco/make_averager.hpp"

#include "common/comm/traffic_theory.hpp"
#include "step9_diloco/compressed_averager.hpp"

namespace ladder {

std::unique_ptr<Averager> make_averager(const DilocoOptions& options, Communicator& comm) {
  if (options.wire == WireFormat::kFp32) return std::make_unique<GroupAverager>(comm);
  return std::make_unique<CompressedAverager>(comm, options.wire);
}

Traffic average_traffic(const DilocoOptions& options, std::int64_t numel, int world_size,
                        int rank) {
  if (options.wire == WireFormat::kFp32) return all_reduce_traffic(numel, 4, world_size, rank);
  return compressed_average_traffic(numel, options.wire, world_size, rank);
}

}  // namespace ladder
