// The main() of every step and of every chapter that trains. CMake says which: LADDER_TRAIN_HEADER
// is its train.hpp, and LADDER_STEP the namespace in it.
#include "common/train/run_main.hpp"
#include LADDER_TRAIN_HEADER

int main(int argc, char** argv) {
  return ladder::run_main(argc, argv, LADDER_STEP::trainer());
}
