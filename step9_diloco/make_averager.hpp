// The averager that a run's options ask for, and what it sends.
#pragma once

#include <cstdint>
#include <memory>

#include "common/comm/traffic.hpp"
#include "step9_diloco/averager.hpp"
#include "step9_diloco/diloco_options.hpp"

namespace ladder {

// All ranks of the communicator, which outlives it. In fp32 it is GroupAverager: one all-reduce.
std::unique_ptr<Averager> make_averager(const DilocoOptions& options, Communicator& comm);

// What one average of `numel` values sends.
Traffic average_traffic(const DilocoOptions& options, std::int64_t numel, int world_size, int rank);

}  // namespace ladder
