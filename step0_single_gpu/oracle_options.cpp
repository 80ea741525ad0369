#include "step0_single_gpu/oracle_options.hpp"

#include <bit>

namespace ladder {

std::int64_t most_waiting_sums(std::int64_t num_ranks) {
  return std::bit_width(static_cast<std::uint64_t>(num_ranks)) - 1;
}

void check_alone(int world_size) {
  check_usage(world_size == 1, "step 0 runs on one rank, not on ", world_size,
              "; --simulate-ranks ", world_size, " plays them in one process");
}

}  // namespace ladder
