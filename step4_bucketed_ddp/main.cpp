#include "common/train/run_main.hpp"
#include "step4_bucketed_ddp/train.hpp"

int main(int argc, char** argv) {
  return ladder::run_main(argc, argv, ladder::step4::trainer());
}
