#include "common/train/run_main.hpp"
#include "step6_zero2/train.hpp"

int main(int argc, char** argv) {
  return ladder::run_main(argc, argv, ladder::step6::trainer());
}
