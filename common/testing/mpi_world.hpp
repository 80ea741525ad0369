// The World of a test program that runs under MPI (ladder_testing_mpi_main).
//
// Collectives and tests: use EXPECT, not ASSERT, before and between collectives. A rank that leaves
// a test early makes the others wait, until the time limit of mpi_main.cpp ends them all.
#pragma once

#include "common/comm/world.hpp"

namespace ladder {

World& mpi_world();  // of all ranks; from inside a test

}  // namespace ladder
