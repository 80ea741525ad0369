// The World of a test program that runs under MPI only. Other tests: rank_test.hpp.
//
// Before and between collectives, use EXPECT instead of ASSERT: a rank that leaves a test early
// makes the others wait until the time limit of mpi_main.cpp ends them all.
#pragma once

#include "common/comm/world.hpp"
#include "common/testing/rank_test.hpp"

namespace ladder {

World& mpi_world();  // all ranks; call it inside a test. Throws CheckError if the ranks are threads

}  // namespace ladder
