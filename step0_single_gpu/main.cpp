#include "common/train/run_main.hpp"
#include "step0_single_gpu/train.hpp"

int main(int argc, char** argv) {
  return ladder::run_main(argc, argv, ladder::step0::trainer());
}
