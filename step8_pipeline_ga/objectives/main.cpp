#include "common/train/run_main.hpp"
#include "step8_pipeline_ga/objectives/train.hpp"

int main(int argc, char** argv) {
  return ladder::run_main(argc, argv, ladder::objectives::trainer());
}
