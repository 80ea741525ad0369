#include "step3_naive_dp/exercise/grader.hpp"
