#include "step1_ddp_reference/collectives/message_rounds.hpp"

#include "common/core/check.hpp"

namespace ladder {
namespace {

using Rounds = std::vector<MessageRound>;

// Slice q of each rank to rank q: to be added up there, or, in an all-to-all, to be kept.
MessageRound each_slice_to_its_rank(int num_ranks, bool adds) {
  MessageRound round;
  for (int from = 0; from < num_ranks; ++from)
    for (int i = 1; i < num_ranks; ++i) {
      const int to = (from + i) % num_ranks;
      round.push_back({from, to, /*slice=*/to, /*into=*/adds ? to : from, adds});
    }
  return round;
}

// Each rank's own slice to all others.
MessageRound own_slice_to_all(int num_ranks) {
  MessageRound round;
  for (int from = 0; from < num_ranks; ++from)
    for (int i = 1; i < num_ranks; ++i)
      round.push_back({from, (from + i) % num_ranks, from, from, /*adds=*/false});
  return round;
}

// Each rank sends its successor what it has got from its predecessor in the round before. `first`:
// in the first round, rank r sends the slice r + first.
Rounds around(int num_ranks, int first, bool adds) {
  Rounds rounds;
  for (int round = 0; round < num_ranks - 1; ++round) {
    rounds.emplace_back();
    for (int from = 0; from < num_ranks; ++from) {
      const int slice = (from + first - round + 2 * num_ranks) % num_ranks;
      rounds.back().push_back({from, (from + 1) % num_ranks, slice, slice, adds});
    }
  }
  return rounds;
}

Rounds then(Rounds first, const Rounds& second) {
  first.insert(first.end(), second.begin(), second.end());
  return first;
}

Rounds direct(Collective collective, int num_ranks) {
  switch (collective) {
    case Collective::kReduceScatter:
      return {each_slice_to_its_rank(num_ranks, /*adds=*/true)};
    case Collective::kAllGather:
      return {own_slice_to_all(num_ranks)};
    case Collective::kAllToAll:
      return {each_slice_to_its_rank(num_ranks, /*adds=*/false)};
    case Collective::kAllReduce:
      return {each_slice_to_its_rank(num_ranks, /*adds=*/true), own_slice_to_all(num_ranks)};
    case Collective::kBroadcast:
      break;
  }
  MessageRound round;
  for (int to = 1; to < num_ranks; ++to)
    round.push_back({0, to, SliceMessage::kWhole, SliceMessage::kWhole});
  return {round};
}

Rounds ring(Collective collective, int num_ranks) {
  const auto sums = [&] { return around(num_ranks, /*first=*/-1, /*adds=*/true); };
  const auto copies = [&] { return around(num_ranks, /*first=*/0, /*adds=*/false); };
  switch (collective) {
    case Collective::kReduceScatter:
      return sums();
    case Collective::kAllGather:
      return copies();
    case Collective::kAllReduce:
      return then(sums(), copies());
    case Collective::kAllToAll:
      throw UsageError("an all-to-all is direct: all pairs exchange something");
    case Collective::kBroadcast:
      break;
  }
  Rounds rounds;
  for (int to = 1; to < num_ranks; ++to)
    rounds.push_back({{to - 1, to, SliceMessage::kWhole, SliceMessage::kWhole}});
  return rounds;
}

}  // namespace

std::vector<MessageRound> message_rounds(Collective collective, Way way, int num_ranks) {
  if (num_ranks == 1) return {};
  return way == Way::kDirect ? direct(collective, num_ranks) : ring(collective, num_ranks);
}

}  // namespace ladder
