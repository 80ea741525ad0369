// An average whose bits do not depend on which rank is which worker, nor on how a transport adds:
// --gradient-sum exact. Round first, then add (common/optim/quanta.hpp).
//
// A round has time for a message that a step has not. So quanta need not be guessed from the last
// sum, as those of gradients are, and no sum leaves its range: the workers tell each other the
// largest magnitude in each block of kNormBlock values, and all use the largest of all workers.
// With that below 2ᵉ, and N workers,
//
//   quantum = 2ᵉ · max(N, 4) / 2²⁴     N rounded up to a power of two
//
// so that a summand has at most 2²² quanta, which is how far adding and taking away 1.5 · 2²³ of
// them can round, and N summands have at most 2²⁴, which fp32 adds up exactly. Maxima have no order,
// and nothing is kept from one round to the next.
#pragma once

#include "step9_diloco/averager.hpp"

namespace ladder {

// Unlike other averagers' start(), this one's waits: for 4 bytes per block of each worker. All of a
// block that holds a value that is not finite, or is above 2¹²⁰, becomes NaN for all workers.
// Lifetime: the communicator outlives it.
class ExactAverager final : public GroupAverager {
 public:
  explicit ExactAverager(Communicator& comm) : GroupAverager(comm), comm_(comm) {}
  void start(at::Tensor values) override;

 private:
  Communicator& comm_;
};

}  // namespace ladder
