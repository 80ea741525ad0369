#include "common/train/run_main.hpp"
#include "step1_ddp_reference/train.hpp"

int main(int argc, char** argv) {
  return ladder::run_main(argc, argv, ladder::step1::trainer());
}
