// What theory says of all steps, and of the chapters that train. CMake writes the function.
#pragma once

#include <vector>

#include "common/train/theory.hpp"

namespace ladder {

std::vector<Theory> theories();

}  // namespace ladder
