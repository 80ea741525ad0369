// What a judge draws at random and prints, next to its fixed cases: no answer can be made for all
// cases that it is judged on.
//
//   Draw draw(comm);
//   const std::int64_t numel = draw.number(1100, 1900);
//   examine(draw.announce(concat(numel, " elements")), …);
//
// All ranks draw the same numbers. They follow from a seed, which is the same in every Draw of a
// process: LADDER_JUDGE_SEED as rank 0 has it, or else a new one. So an environment variable
// repeats what a judge has drawn on as many ranks.
//
// Collective: the constructor. Throws CheckError, on every rank, if LADDER_JUDGE_SEED is not a whole
//             number from 0 to 999999.
#pragma once

#include <cstdint>
#include <random>
#include <string>

#include "common/comm/communicator.hpp"

namespace ladder {

class Draw {
 public:
  explicit Draw(Communicator& comm);

  std::int64_t number(std::int64_t least, std::int64_t most);  // each is equally likely
  bool coin() { return number(0, 1) == 1; }

  // The name of a check: "drawn at random, WHAT (LADDER_JUDGE_SEED=81)". Rank 0 also prints it, once
  // per process, before anything can go wrong in the check.
  std::string announce(const std::string& what) const;

 private:
  int rank_;
  std::uint64_t seed_;
  std::mt19937_64 generator_;
};

}  // namespace ladder
