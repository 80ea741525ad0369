#include "common/train/run_main.hpp"
#include "step4_bucketed_ddp/train.hpp"

int main(int argc, char** argv) {
  return ladder::run_main(argc, argv,
                          {.step = "step4_bucketed_ddp",
                           .train = ladder::step4::train,
                           .state_bytes = ladder::step4::state_bytes,
                           .step_traffic = ladder::step4::step_traffic,
                           .groups = {ladder::OptionGroup::kBuckets}});
}
