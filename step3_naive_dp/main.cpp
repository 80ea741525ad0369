#include "common/train/run_main.hpp"
#include "step3_naive_dp/train.hpp"

int main(int argc, char** argv) {
  return ladder::run_main(argc, argv,
                          {.step = "step3_naive_dp",
                           .train = ladder::step3::train,
                           .state_bytes = ladder::step3::state_bytes,
                           .step_traffic = ladder::step3::step_traffic});
}
