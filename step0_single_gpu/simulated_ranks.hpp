// Several data-parallel ranks, played one after the other in one process: the ladder's oracle.
//
// Floating-point sums depend on their order. N ranks with m microbatches each add up their
// gradients in one order; a single process that runs the same N·m microbatches in one long loop
// adds them in another, and most elements then differ in their last bit. This class adds in the
// order of steps 1 to 5, which reduce once per step, so that a parallel run can be compared with a
// single process bit by bit:
//
//   (r0m0 + r0m1 + …) + (r1m0 + r1m1 + …)     on two ranks; on more, a tree (tree_sum.hpp)
//
// Steps 6 and 7 reduce after every microbatch. With several microbatches they equal step 0 if sums
// are exact (exact_sums.hpp), and up to rounding otherwise.
//
// A global microbatch holds the rows of all ranks: row i·N + r is row i of rank r.
#pragma once

#include <cstdint>

#include "common/data/batch_stream.hpp"
#include "common/optim/flat_model.hpp"
#include "step0_single_gpu/accumulate_gradients.hpp"
#include "step0_single_gpu/oracle_options.hpp"

namespace ladder {

class SimulatedRanks {
 public:
  // Lifetime: `grads` outlives this.
  // Memory:   none for one rank; otherwise 4 bytes per element for each sum over some ranks that
  //           waits, counted as other, "simulated ranks".
  SimulatedRanks(std::int64_t num_ranks, FlatGradients& grads);

  // Does what accumulate_gradients() on all ranks and the reduction after it would do: leaves the
  // reduced gradient in `grads`, returns the global loss. Expects zeroed gradients.
  double accumulate_gradients(const LossSum& loss_sum, const Microbatches& global_batch,
                              double num_targets);

 private:
  std::int64_t num_ranks_;
  FlatGradients& grads_;
  at::Tensor waiting_;  // sums over some ranks [most_waiting_sums(num_ranks), layout.numel]
};

// The stream of global microbatches, each with num_ranks times as many rows. An epoch's tail is
// dropped or padded so that the ranks share it equally. With Deal::kMicrobatches, the stream of all
// ranks' microbatches.
BatchStream global_batches(const DataOptions& options, std::int64_t num_ranks);

// The rows of one rank in a global microbatch, or in each of several: rank, rank + num_ranks, ….
Microbatch rows_of_rank(const Microbatch& global, std::int64_t rank, std::int64_t num_ranks);
Microbatches rows_of_rank(const Microbatches& global, std::int64_t rank, std::int64_t num_ranks);

// What of a step is this rank's, as its samples are dealt.
Microbatches share_of_rank(const Microbatches& global, Deal deal, int rank, int num_ranks);

}  // namespace ladder
