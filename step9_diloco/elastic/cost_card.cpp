#include "common/core/check.hpp"
#include "step9_diloco/elastic/theory.hpp"

namespace ladder::elastic {

void check_alone(int world_size) {
  check_usage(world_size == 1, "a worker that may die is a process of its own, but this run has ",
              world_size, " ranks; start each worker by itself");
}

StateBytes state_bytes(const TrainOptions& options, int world_size, int rank) {
  check_alone(world_size);
  return step9::state_bytes(options, world_size, rank);
}

}  // namespace ladder::elastic
