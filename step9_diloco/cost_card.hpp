// What an average sends.
#pragma once

#include <cstdint>
#include <vector>

#include "common/train/options/options.hpp"
#include "common/train/sends.hpp"
#include "step9_diloco/wire_format.hpp"

namespace ladder {

// What one compressed average of `numel` values sends. With e_q encoded bytes in slice q, worker r sends
//
//   the sum of all e_q but its own, and (N − 1) · e_r
//
// which is on average 2(N−1)/N · encoded_bytes(numel), and a little more in int8, for a slice
// begins a block.
std::vector<Send> compressed_average_sends(std::int64_t numel, WireFormat format, int world_size,
                                           int rank);

// What one average of the run's averager sends. An exact one's are an all-gather of maxima and an
// all-reduce.
std::vector<Send> average_sends(const TrainOptions& options, std::int64_t numel, int world_size,
                                int rank);

}  // namespace ladder
