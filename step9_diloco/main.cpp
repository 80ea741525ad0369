#include "common/train/run_main.hpp"
#include "step9_diloco/train.hpp"

int main(int argc, char** argv) {
  return ladder::run_main(argc, argv, ladder::step9::trainer());
}
