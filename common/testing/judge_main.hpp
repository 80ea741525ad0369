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
// Below it is a line for each target: the numbers and texts of Target, with tabs between them.
#pragma once

#include <string>
#include <vector>

#include "common/comm/communicator.hpp"

namespace ladder {

// Defined by each exercise (exercise/checks.cpp): what is wrong with the answer that is linked, a
// line for each fault, the same on all ranks; nothing if it is right. The answer is the solution,
// the learner's file, or one that is planted (planted_answer.hpp). Collective.
std::vector<std::string> judge_linked(Communicator& comm);

// How good an answer is that is right, measured without a clock; less is better. No verdict: an
// answer that misses it is right all the same.
struct Target {
  double found = 0;     // on this rank
  double solution = 0;  // by theory: the answer has taken the solution's place
  double naive = 0;     // of the plain way
  std::string what;     // goes on after each of these numbers: "% of the time in flight is exposed"
  std::string naive_is;  // the plain way: "all buckets leave after backward"
  std::string hint;      // where to look if the solution is better
};

// Defined by an exercise that has targets; otherwise null. Measures the answer that is linked, once
// it is right. Collective; as many on every rank.
[[gnu::weak]] std::vector<Target> measure_linked(Communicator& comm);

}  // namespace ladder
