#include "common/train/run_main.hpp"
#include "step7_zero3/train.hpp"

int main(int argc, char** argv) {
  return ladder::run_main(argc, argv,
                          {.step = "step7_zero3",
                           .train = ladder::step7::train,
                           .state_bytes = ladder::step7::state_bytes,
                           .step_traffic = ladder::step7::step_traffic,
                           .microbatch_traffic = ladder::step7::microbatch_traffic,
                           .peak_bytes = ladder::step7::peak_bytes,
                           .groups = {ladder::OptionGroup::kPrefetch}});
}
