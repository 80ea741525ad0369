// The sum over a quorum's contributors, with the same bits for all members.
//
// Every contributor owns a slice of the values. It receives this slice from all others, adds them
// up as the tree of tree_sum.hpp, and sends the sum to all members:
//
//   contributor 0   [ a0 | b0 | c0 ]   ->   owns slice a: (a0 + a1) + a2  ->   [ A | B | C ]
//   contributor 1   [ a1 | b1 | c1 ]   ->   owns slice b: (b0 + b1) + b2  ->   [ A | B | C ]
//   contributor 2   [ a2 | b2 | c2 ]   ->   owns slice c: (c0 + c1) + c2  ->   [ A | B | C ]
//   one that heals  nothing                                                ->   [ A | B | C ]
//
// Each sum is computed once, so no two members can differ. This is a reduce-scatter and an
// all-gather: each of n contributors sends 2(n−1)/n · 4 bytes per value, and 4/n to each that
// heals.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "step9_diloco/elastic/message.hpp"
#include "step9_diloco/elastic/messenger.hpp"
#include "step9_diloco/elastic/quorum.hpp"

namespace ladder {

// The workers whose parts of a round have not arrived.
struct Missing {
  std::vector<int> values;  // did not send theirs
  std::vector<int> sums;  // did not send the sum of their slice, perhaps for lack of others' values

  bool is_empty() const { return values.empty() && sums.empty(); }
};

// Replaces `values` [n], fp32 and contiguous, by the sum over the quorum's contributors; those of a
// member that heals do not count. Returns what is missing after `seconds`; if anything is, the
// values mean nothing. `mailbox` has begun the quorum.
Missing sum_over_contributors(const at::Tensor& values, const Quorum& quorum, int worker,
                              Messenger& messenger, Mailbox& mailbox, double seconds);

}  // namespace ladder
