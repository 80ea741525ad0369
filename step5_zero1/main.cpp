#include "common/train/run_main.hpp"
#include "step5_zero1/train.hpp"

int main(int argc, char** argv) {
  return ladder::run_main(argc, argv, ladder::step5::trainer());
}
