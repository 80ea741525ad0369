#include "step1_ddp_reference/collectives/message_rounds.hpp"

#include <gtest/gtest.h>

#include <map>

#include "common/comm/slice.hpp"
#include "common/comm/traffic_theory.hpp"
#include "common/core/check.hpp"

namespace ladder {
namespace {

// What a rank has in each slice: how often each rank's part of which slice is in it.
using Part = std::pair<int, int>;  // of a rank, its slice
using Cell = std::map<Part, int>;
using Cells = std::vector<std::vector<Cell>>;  // by rank and slice

Cells begin(int num_ranks) {
  Cells cells(static_cast<std::size_t>(num_ranks));
  for (int rank = 0; rank < num_ranks; ++rank)
    for (int slice = 0; slice < num_ranks; ++slice)
      cells[static_cast<std::size_t>(rank)].push_back({{{rank, slice}, 1}});
  return cells;
}

Cell& at(Cells& cells, int rank, int slice) {
  return cells[static_cast<std::size_t>(rank)][static_cast<std::size_t>(slice)];
}

// All messages of a round leave before one arrives.
Cells carry_out(const std::vector<MessageRound>& rounds, int num_ranks) {
  Cells cells = begin(num_ranks);
  for (const MessageRound& round : rounds) {
    Cells sent = cells;
    for (const SliceMessage& message : round) {
      for (int slice = 0; slice < num_ranks; ++slice) {
        if (message.slice != SliceMessage::kWhole && message.slice != slice) continue;
        const int into = message.slice == SliceMessage::kWhole ? slice : message.into;
        const Cell& what = at(sent, message.from, slice);
        Cell& there = at(cells, message.to, into);
        if (!message.adds) there.clear();
        for (const auto& [part, count] : what) there[part] += count;
      }
    }
  }
  return cells;
}

Cell sum_of(int slice, int num_ranks) {
  Cell sum;
  for (int rank = 0; rank < num_ranks; ++rank) sum[{rank, slice}] = 1;
  return sum;
}

TEST(MessageRounds, LeaveOnEachRankWhatTheCollectiveSays) {
  for (int size = 1; size <= 9; ++size) {
    for (const Way way : {Way::kDirect, Way::kRing}) {
      Cells reduced = carry_out(message_rounds(Collective::kAllReduce, way, size), size);
      Cells scattered = carry_out(message_rounds(Collective::kReduceScatter, way, size), size);
      Cells gathered = carry_out(message_rounds(Collective::kAllGather, way, size), size);
      Cells copied = carry_out(message_rounds(Collective::kBroadcast, way, size), size);
      for (int rank = 0; rank < size; ++rank) {
        EXPECT_EQ(at(scattered, rank, rank), sum_of(rank, size)) << size;
        for (int slice = 0; slice < size; ++slice) {
          EXPECT_EQ(at(reduced, rank, slice), sum_of(slice, size)) << size;
          EXPECT_EQ(at(gathered, rank, slice), (Cell{{{slice, slice}, 1}})) << size;
          EXPECT_EQ(at(copied, rank, slice), (Cell{{{0, slice}, 1}})) << size;
        }
      }
    }
    Cells exchanged = carry_out(message_rounds(Collective::kAllToAll, Way::kDirect, size), size);
    for (int rank = 0; rank < size; ++rank)
      for (int from = 0; from < size; ++from)
        EXPECT_EQ(at(exchanged, rank, from), (Cell{{{from, rank}, 1}})) << size;
  }
  EXPECT_THROW(message_rounds(Collective::kAllToAll, Way::kRing, 3), UsageError);
}

// Direct ones are those of the transports, whose meter traffic_theory.hpp equals.
TEST(MessageRounds, SendWhatTheTransportsSend) {
  const std::map<Collective, CommOp> kinds = {{Collective::kAllReduce, CommOp::kAllReduce},
                                              {Collective::kReduceScatter, CommOp::kReduceScatter},
                                              {Collective::kAllGather, CommOp::kAllGather},
                                              {Collective::kBroadcast, CommOp::kBroadcast}};
  for (const auto& [collective, op] : kinds) {
    for (int size = 1; size <= 6; ++size) {
      const std::int64_t numel = 1001;
      const auto rounds = message_rounds(collective, Way::kDirect, size);
      for (int rank = 0; rank < size; ++rank) {
        OpTraffic found = {.calls = 1};
        for (const MessageRound& round : rounds)
          for (const SliceMessage& message : round) {
            if (message.from != rank) continue;
            ++found.messages;
            const bool is_whole = message.slice == SliceMessage::kWhole;
            found.bytes_sent += 4 * (is_whole ? numel : slice_of(numel, size, message.slice).numel);
          }
        const Sent sent = sent_by(op, numel, 4, size, rank);
        EXPECT_EQ(found, sent.traffic[op]) << to_string(op) << ", rank " << rank << " of " << size;
        if (found.messages > 0) {
          EXPECT_EQ(std::ssize(rounds), sent.links.inside.rounds);
        }
      }
    }
  }
}

// A ring has as many messages, one after the other.
TEST(MessageRounds, AreAsManyAsTheLessonSays) {
  for (int size = 2; size <= 8; ++size) {
    EXPECT_EQ(message_rounds(Collective::kAllReduce, Way::kDirect, size).size(), 2);
    const auto ring = message_rounds(Collective::kAllReduce, Way::kRing, size);
    EXPECT_EQ(std::ssize(ring), 2 * (size - 1));
    for (const MessageRound& round : ring) {
      EXPECT_EQ(std::ssize(round), size);
      for (const SliceMessage& message : round) EXPECT_EQ(message.to, (message.from + 1) % size);
    }
  }
}

}  // namespace
}  // namespace ladder
