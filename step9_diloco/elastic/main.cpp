#include "common/train/run_main.hpp"
#include "step9_diloco/elastic/train.hpp"

int main(int argc, char** argv) {
  return ladder::run_main(argc, argv, ladder::elastic::trainer());
}
