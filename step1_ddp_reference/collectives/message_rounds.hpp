// Which messages a collective consists of, round by round: direct, or around a ring.
//
// A tensor is cut into one slice for each rank (slice_of in common/comm/slice.hpp). The messages of a
// round travel at the same time; in the next round, ranks send what they have by then. Ladder's
// transports send the direct ones (common/comm/messages/message_communicator.hpp), whose bytes and
// messages are those of traffic_theory.hpp. The figure of the lesson draws both.
#pragma once

#include <vector>

namespace ladder {

enum class Collective { kAllReduce, kReduceScatter, kAllGather, kBroadcast, kAllToAll };
enum class Way { kDirect, kRing };

// One slice, or with kWhole the tensor, on its way.
struct SliceMessage {
  static constexpr int kWhole = -1;
  int from = 0, to = 0;
  int slice = 0;      // of the sender's tensor
  int into = 0;       // the receiver's slice; another one in an all-to-all
  bool adds = false;  // to what the receiver has there, instead of taking its place
};
using MessageRound = std::vector<SliceMessage>;

// All messages of a collective of so many ranks; rank 0 is the root. One rank sends nothing. Throws
// UsageError for an all-to-all around a ring.
std::vector<MessageRound> message_rounds(Collective collective, Way way, int num_ranks);

}  // namespace ladder
