// The judge of an exercise as a program, run by ./ladder exercise: judges the answer that it
// links.
//
// Rank 0 prints the faults, one per line. Ends with exit code 0 if there are none, else 1. If
// judging throws, crashes, or takes longer than a minute, all ranks end, and the message names the
// check that was running. A build without MPI has one rank.
//
// With --verdict FILE, the verdict is also in FILE when the program ends: the word that was there at
// first, and "right" or "wrong". The file is gone while answers run, so only the judge can write it:
// an answer that ends the program leaves none, whatever the exit code is and whatever it prints.
#pragma once

#include <string>
#include <vector>

#include "common/comm/communicator.hpp"

namespace ladder {

// Defined by each exercise (exercise/checks.cpp): what is wrong with the answer that is linked, a
// line for each fault, the same on all ranks; nothing if it is right. The answer is the solution,
// the learner's file, or one that is planted (planted_answer.hpp). Collective.
std::vector<std::string> judge_linked(Communicator& comm);

}  // namespace ladder
