// The trainers of all steps, in the order of CMake's list LADDER_STEPS, from which CMake writes the function.
#pragma once

#include <vector>

#include "common/train/trainer.hpp"

namespace ladder {

std::vector<Trainer> trainers();

}  // namespace ladder
