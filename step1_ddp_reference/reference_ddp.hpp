// Data parallelism as libtorch does it: the reference that later steps must equal.
//
// Every rank has a replica of the model and differentiates different rows. Before the optimizer
// steps, the gradients are summed over the ranks, so that all replicas take the same step and stay
// equal. c10d::Reducer, on which DistributedDataParallel is built (Li et al., VLDB 2020), collects
// the gradients in buckets while backward is running, hands each full bucket to a comm hook, and
// copies back what the hook returns. The hook is ours and sums over `comm`. Plain sums are right
// because the loss was already divided by the target count of all ranks' whole step (step 0).
//
//   ddp.broadcast_parameters();                      // once
//   const LossSum loss_sum = ddp.wrap(…);
//   …
//   ddp.arm(batch.size());                           // the last of these backwards reduces
//   accumulate_gradients(loss_sum, batch, num_targets);
//   ddp.wait();                                      // .grad now holds the sum over all ranks
//
// Collective: every rank constructs it with the same parameters in the same order, and calls
// broadcast_parameters(), arm() and wait() in the same order, with at least one microbatch per
// step. Constructor and destructor are local.
//
// Result:   the tree's sum (tree_sum.hpp) of g0, g1, … to the bit, where g_r is what rank r's
//           microbatches added to .grad in their order. .grad stays a view of the flat gradient buffer.
// Traffic:  one all_reduce per bucket of plan_reference_buckets() and step, whatever the number of
//           microbatches. The last backward starts it and waits for it: no overlap yet.
// Memory:   the buckets are a second copy of the gradients: 4 bytes per trainable parameter, for as
//           long as this lives (category: communication). They are reduced in place.
// Lifetime: `model` and `comm` outlive this; the function that wrap() returns does not.
// Throws:   CheckError, which names the rank unless the constructor throws it. An error during a
//           step leaves meaningless gradients and an object that can only be destroyed.
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

  // Makes every replica's parameters equal to rank 0's, frozen ones included. Collective, blocking.
  // Memory: as c10d::broadcast_coalesced: flat copies of the leaves in their order (category:
  //         communication), each sent once it has buffer_bytes or more, DDP's 250 MiB. At most two
  //         are there at a time: less than 2 · (buffer_bytes + the largest leaf).
  void broadcast_parameters(std::int64_t buffer_bytes = std::int64_t{250} << 20);

  // Returns the forward that the loop calls. It counts the microbatches since arm(), together with
  // all others that it has returned, as for two objectives in one step, and prepares the Reducer
  // after the last one's forward. Without arm(), or without gradients (evaluation), it
  // only forwards the call. Throws CheckError for a microbatch beyond those announced.
  LossSum wrap(LossSum loss_sum);

  // The next num_microbatches forwards and backwards are one step. Throws CheckError, naming the
  // number, if that is less than one; also if the previous step has not had its wait().
  void arm(std::int64_t num_microbatches);

  // Ends the step: gradients are sums over all ranks. Throws CheckError, "wait() without arm()", if
  // no step has begun; if fewer microbatches ran than were announced; or, naming the parameter, if
  // the last backward gave it no gradient. Its bucket then never filled, and other ranks may wait
  // for it until this one takes them down.
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
