// For tests: ranks in a ring, and what a rank sends.
#pragma once

#include "common/comm/communicator.hpp"
#include "common/testing/rank_test.hpp"

namespace ladder {

// A fixture for TEST_ON_RANKS.
class RingTest : public RankTest {
 protected:
  const int next_ = (rank_ + 1) % size_;
  const int previous_ = (rank_ + size_ - 1) % size_;
};

// What this rank sends while it acts.
template <class Act>
Traffic sent_in(Communicator& comm, const Act& act) {
  const Traffic before = comm.traffic();
  act();
  Traffic sent = comm.traffic();
  return sent -= before;
}

}  // namespace ladder
