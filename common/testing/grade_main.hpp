// main() of a step's grader, run by ./ladder exercise: grades the answer that this build links.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "common/comm/communicator.hpp"

namespace ladder {

// Rank 0 prints the faults that `grade` finds, one per line. Returns exit code 0 if it finds none,
// else 1. If `grade` throws, crashes, or takes longer than a minute, all ranks end, and the message
// names the check that was running. A build without MPI has one rank.
int grade_main(const std::function<std::vector<std::string>(Communicator&)>& grade);

}  // namespace ladder
