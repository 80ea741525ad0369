// main() of a step's grader, which ./ladder exercise runs: is the answer right that this build links?
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "common/comm/communicator.hpp"

namespace ladder {

// Rank 0 shows what `grade` finds wrong, a line each. Exit code 0 if that is nothing, else 1. A grade
// that throws, crashes, or takes longer than a minute ends all ranks; what is said then names the
// check that was running. In a build without MPI there is one rank.
int grade_main(const std::function<std::vector<std::string>(Communicator&)>& grade);

}  // namespace ladder
