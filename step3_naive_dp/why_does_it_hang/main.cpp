#include "common/train/run_main.hpp"
#include "step3_naive_dp/why_does_it_hang/train.hpp"

int main(int argc, char** argv) {
  return ladder::run_main(argc, argv, ladder::hang::trainer());
}
