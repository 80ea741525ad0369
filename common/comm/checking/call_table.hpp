// The newest calls of all ranks next to one another, and who waits for whom. Local.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace ladder {

// A call of one rank.
struct Call {
  // Calls that have to agree, in words that are the same on all ranks: the collectives of a group,
  // "of all ranks", or the messages of a line, "from rank 0 to rank 1 with tag 5".
  std::string sequence;
  std::int64_t number = 0;  // in its sequence, from 1
  std::string what;         // "all_reduce of 64 Float", "send of 64 Float to rank 1 with tag 5"
  std::string where;        // "step3_naive_dp/naive_dp.cpp:16", or nothing
  std::int64_t step = 0;    // optimizer step; 0: before the first

  bool is_same_place(const Call& other) const {
    return sequence == other.sequence && number == other.number;
  }
};

inline constexpr const char* kAllRanks = "of all ranks";  // the sequence of their collectives

struct RankCalls {
  enum class State { kRuns, kWaits, kParts, kFailed, kEnded };
  State state = State::kRuns;
  Call current;                // that it waits in, or at which it parts from the others
  std::vector<int> ranks;      // of the current call, that it waits in
  std::vector<int> waits_for;  // those of them that have not called it
  std::string waited_s;        // for how long; or nothing
  std::vector<Call> newest;    // oldest first
};

// "the ranks part at call 15 of all ranks, in optimizer step 2:", and a line for each call.
std::string describe_parting(const Call& call, const std::vector<RankCalls>& ranks);

// A line for each rank that waits for others, and for each of these that does not wait.
std::string describe_waits(const std::vector<RankCalls>& ranks);

// A column for each rank; ranks with equal columns share one. Calls of the same sequence and number
// are in one row. It begins with ">" if they differ, or if a rank waits there for others.
std::string side_by_side(const std::vector<RankCalls>& ranks);

}  // namespace ladder
