#include "step9_diloco/elastic/piece_requests.hpp"

#include <gtest/gtest.h>

#include <deque>
#include <set>

namespace ladder {
namespace {

// A link that carries a piece in so many seconds, one after the other, on a clock of its own.
struct Link {
  explicit Link(double seconds_per_piece) : piece_s(seconds_per_piece) {}
  double piece_s;
  std::set<int> lost = {};   // the numbers, from 0, of the copies that do not arrive
  std::set<int> stops = {};  // before these copies the link stands still for `stop_s`
  double stop_s = 0;

  int num_copies = 0;
  std::size_t longest_queue = 0;
  double now_s = 0;

  // Until all pieces are there.
  void carry(std::int64_t num_pieces) {
    PieceRequests requests(num_pieces);
    std::deque<std::int64_t> queue;
    std::set<std::int64_t> there;
    double free_s = 0;  // when the first in the queue arrives
    while (static_cast<std::int64_t>(there.size()) < num_pieces) {
      ASSERT_LT(now_s, 1e6);
      const auto has_piece = [&](std::int64_t piece) { return there.contains(piece); };
      for (const std::int64_t piece : requests.due(now_s, has_piece)) {
        if (queue.empty()) free_s = now_s + piece_s;
        queue.push_back(piece);
      }
      longest_queue = std::max(longest_queue, queue.size());
      const double retry_at_s = now_s + requests.retry_s();
      if (queue.empty() || free_s > retry_at_s) {
        now_s = retry_at_s;
        continue;
      }
      now_s = free_s;
      if (!lost.contains(num_copies)) there.insert(queue.front());
      queue.pop_front();
      free_s = now_s + piece_s + (stops.contains(++num_copies) ? stop_s : 0);
    }
  }
};

// The first piece may take longer than the first retry time. After that everything is measured.
TEST(PieceRequests, OneRequestForEachPiece) {
  for (const double piece_s : {1e-5, 1e-3, 0.02, 0.064, 0.19}) {
    Link link(piece_s);
    link.carry(400);
    EXPECT_EQ(link.num_copies, 400) << piece_s;
    EXPECT_LE(link.longest_queue, 16U);
  }
  for (const double piece_s : {0.3, 1.0, 10.0}) {
    Link link(piece_s);
    link.carry(400);
    EXPECT_LE(link.num_copies, 410) << piece_s;
  }
}

// Also at the end, where no later piece shows that one is lost.
TEST(PieceRequests, ALostPieceIsAskedForOnceMore) {
  for (const int lost : {0, 1, 2, 17, 50, 84, 98, 99}) {
    Link link(0.02);
    link.lost = {lost};
    link.carry(100);
    EXPECT_EQ(link.num_copies, 101) << lost;
    EXPECT_LT(link.now_s, 100 * 0.02 + 2) << lost;
  }
}

// A connection that breaks loses all that is on its way.
TEST(PieceRequests, AWindowThatIsLostIsAskedForAgain) {
  Link link(0.02);
  for (int copy = 40; copy < 56; ++copy) link.lost.insert(copy);
  link.carry(100);
  EXPECT_LE(link.num_copies, 100 + 16 + 3);
  EXPECT_LT(link.now_s, 119 * 0.02 + 2);
}

// Something else has taken the link: copies of what is on its way would only make it worse.
TEST(PieceRequests, ALinkThatStandsStillIsNotFilled) {
  Link link(0.02);
  link.stops = {30, 60};
  link.stop_s = 10;
  link.carry(100);
  EXPECT_LE(link.num_copies, 100 + 2 * 6);
  EXPECT_LE(link.longest_queue, 16U + 6);
}

}  // namespace
}  // namespace ladder
