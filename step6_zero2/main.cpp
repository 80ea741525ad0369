#include "common/train/run_main.hpp"
#include "step6_zero2/train.hpp"

int main(int argc, char** argv) {
  return ladder::run_main(argc, argv,
                          {.step = "step6_zero2",
                           .train = ladder::step6::train,
                           .state_bytes = ladder::step6::state_bytes,
                           .step_traffic = ladder::step6::step_traffic,
                           .microbatch_traffic = ladder::step6::microbatch_traffic,
                           .peak_bytes = ladder::step6::peak_bytes});
}
