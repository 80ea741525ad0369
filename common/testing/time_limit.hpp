// Ends a process that would run forever: a rank that waits for another, or an endless loop.
#pragma once

#include <string>

namespace ladder {

// $LADDER_TIME_SCALE, 1 if it is not set: how many times as long as on a fast machine a test may
// take. `./ladder test` measures it. All limits of tests are multiplied by it.
double time_scale();

// Unless stop_time_limit() is called within `seconds` times time_scale(), the process writes
// `message` and the current check (current_check.hpp) to stderr and ends with exit code 1, without
// MPI_Finalize, so that mpirun ends the other ranks. One limit at a time.
void start_time_limit(int seconds, const std::string& message);
void stop_time_limit();

}  // namespace ladder
