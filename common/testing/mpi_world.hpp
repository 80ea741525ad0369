// The World of a test program that runs under MPI (ladder_testing_mpi_main).
//
// Before and between collectives, use EXPECT instead of ASSERT: a rank that leaves a test early
// makes the others wait until the time limit of mpi_main.cpp ends them all.
#pragma once

#include "common/comm/world.hpp"

namespace ladder {

World& mpi_world();  // all ranks; call it inside a test

// Another World of all ranks, in which a send is done only when its receiver has started to receive
// (MpiLimits::synchronous_sends). A program that is correct in it does not rely on MPI to buffer
// its messages. Collective.
World synchronous_world();

}  // namespace ladder
