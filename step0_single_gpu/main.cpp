#include "common/train/run_main.hpp"
#include "step0_single_gpu/train.hpp"

int main(int argc, char** argv) {
  return ladder::run_main(argc, argv,
                          {.step = "step0_single_gpu",
                           .train = ladder::step0::train,
                           .state_bytes = ladder::step0::state_bytes,
                           .step_traffic = ladder::step0::step_traffic,
                           .groups = {ladder::OptionGroup::kSimulatedRanks}});
}
