#include "common/train/run_main.hpp"
#include "step0_single_gpu/cuda_graphs/train.hpp"

int main(int argc, char** argv) {
  return ladder::run_main(argc, argv, ladder::cuda_graphs::trainer());
}
