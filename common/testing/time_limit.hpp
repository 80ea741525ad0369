// An end for what would wait for ever: a rank for another that never comes, or a loop for its end.
#pragma once

#include <string>

namespace ladder {

// Until stop_time_limit(): after so many seconds the process writes `message` and the current check
// (current_check.hpp) to stderr and ends with exit code 1, without MPI_Finalize, so that mpirun ends
// the other ranks. One at a time. LADDER_TEST_SECONDS in the environment overrides `seconds`.
void start_time_limit(int seconds, const std::string& message);
void stop_time_limit();

}  // namespace ladder
