#include "common/train/run_main.hpp"
#include "step2_sharded_data/train.hpp"

int main(int argc, char** argv) {
  return ladder::run_main(argc, argv, ladder::step2::trainer());
}
