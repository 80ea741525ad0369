#include "common/train/run_main.hpp"
#include "step2_sharded_data/train.hpp"

int main(int argc, char** argv) {
  return ladder::run_main(argc, argv,
                          {.step = "step2_sharded_data",
                           .train = ladder::step2::train,
                           .state_bytes = ladder::step2::state_bytes,
                           .step_traffic = ladder::step2::step_traffic});
}
