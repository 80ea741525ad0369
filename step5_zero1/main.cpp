#include "common/train/run_main.hpp"
#include "step5_zero1/train.hpp"

int main(int argc, char** argv) {
  return ladder::run_main(argc, argv,
                          {.step = "step5_zero1",
                           .train = ladder::step5::train,
                           .state_bytes = ladder::step5::state_bytes,
                           .step_traffic = ladder::step5::step_traffic});
}
