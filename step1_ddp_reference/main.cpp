#include "common/train/run_main.hpp"
#include "step1_ddp_reference/train.hpp"

int main(int argc, char** argv) {
  return ladder::run_main(argc, argv,
                          {.step = "step1_ddp_reference",
                           .train = ladder::step1::train,
                           .state_bytes = ladder::step1::state_bytes,
                           .step_traffic = ladder::step1::step_traffic,
                           .groups = {ladder::OptionGroup::kReference}});
}
