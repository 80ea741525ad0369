// Data parallelism as libtorch does it: the reference that steps 2 to 5 must equal.
//
// Every rank has a replica of the model and differentiates other rows. Before the optimizer steps,
// the gradients are summed over the ranks, so that all replicas take the same step and stay equal.
// c10d::Reducer, which DistributedDataParallel is built on (Li et al., VLDB 2020), collects the
// gradients in buckets while backward is running, hands each full bucket to a comm hook, and copies
// back what the hook returns. The sum is the hook's, ours: over `comm`. Plain sums are right, because the loss was divided by
// the count of the whole step, over all ranks (step 0).
//
//   ddp.broadcast_parameters();                      // once
//   const LossSum loss_sum = ddp.wrap(…);
//   …
//   ddp.arm(batch.size());                           // the last of these backwards reduces
//   accumulate_gradients(loss_sum, batch, num_targets);
//   ddp.wait();                                      // now .grad holds the sum over all ranks
//
// Collective: every rank constructs it with the same parameters in the same order, and calls
// broadcast_parameters(), arm() and wait() in the same order, with at least one microbatch a step.
// Constructor and destructor are local.
//
// Result:   to the bit ((g0 + g1) + g2) + …, where g_r is what rank r's microbatches added to .grad
//           in their order. .grad stays the view of the flat gradient buffer.
// Traffic:  one all_reduce per bucket of plan_reference_buckets() and step, whatever the number of
//           microbatches, from inside the last backward. It is waited for there: no overlap yet.
// Memory:   the buckets are a second copy of the gradients: 4 bytes per trainable parameter, for as
//           long as this lives (category: communication).
// Lifetime: `model` and `comm` outlive this; the function that wrap() returns does not.
// Throws:   CheckError, which names the rank unless the constructor throws it. One that comes while a
//           step is running leaves gradients that mean nothing, and an object that can only be
//           destroyed.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "common/comm/communicator.hpp"
#include "common/optim/flat_model.hpp"
#include "step0_single_gpu/accumulate_gradients.hpp"
#include "step1_ddp_reference/reference_buckets.hpp"

namespace ladder {

class ReferenceReducer;

class ReferenceDdp {
 public:
  // Throws CheckError if no parameter is trainable.
  ReferenceDdp(FlatModel& model, Communicator& comm);
  ~ReferenceDdp();

  // Replicas start as rank 0's: all parameters, frozen ones too. Collective, blocking. Memory: on
  // the way they are copied into flat tensors, 250 MiB at a time (category: communication).
  void broadcast_parameters();

  // The forward, as the loop is to call it. It counts the microbatches since arm(), and readies the
  // Reducer after the last one's forward. Where nothing is armed, or without gradients (evaluation),
  // it only passes on.
  // Throws CheckError for a microbatch more than was announced.
  LossSum wrap(LossSum loss_sum);

  // The next num_microbatches forwards and backwards are one step. Throws CheckError if that is
  // less than one, or if the step before still wants its wait().
  void arm(std::int64_t num_microbatches);

  // Ends the step: gradients are sums over all ranks. Throws CheckError if fewer microbatches ran
  // than were announced; or if the last one's backward gave a parameter no gradient, and names it:
  // its bucket was never full, and other ranks may wait for it until this one takes them down.
  void wait();

 private:
  std::string where() const;

  FlatModel& model_;
  Communicator& comm_;
  std::unique_ptr<ReferenceReducer> reducer_;
  std::int64_t num_microbatches_ = 0;  // of this step; 0: not armed
  std::int64_t num_seen_ = 0;          // of them
};

}  // namespace ladder
