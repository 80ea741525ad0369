#include "common/train/run_main.hpp"
#include "step8_pipeline_ga/train.hpp"

int main(int argc, char** argv) {
  return ladder::run_main(argc, argv, ladder::step8::trainer());
}
