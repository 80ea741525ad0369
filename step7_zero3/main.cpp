#include "common/train/run_main.hpp"
#include "step7_zero3/train.hpp"

int main(int argc, char** argv) {
  return ladder::run_main(argc, argv, ladder::step7::trainer());
}
