// Sums gradients over all ranks while backward is still running.
//
//   arm(m)            the next m backward passes make up one step
//   … m backwards …   a hook counts each gradient; once all gradients of a bucket have their m
//                     parts, it is ready: its all-reduce starts while autograd computes the next
//   wait()            returns when all buckets are summed
//
// With several microbatches only the last backward communicates, because only then are gradients
// complete (PyTorch calls this no_sync). A backward without arm() communicates nothing.
//
// Collective: every rank constructs it with the same plan, and calls arm() and wait() in the same
// order. All ranks start the buckets in the plan's order, whatever order autograd finishes in: a
// bucket that is ready early waits for those before it. Every hook also lets the transport make
// progress, because MPI makes none by itself.
//
// Lifetime: `grads` and `comm` outlive the bucketer. A parameter can have only one such hook, so a
//           model has one bucketer at a time. Destroy it only after wait(), or after an error, when
//           it can no longer be used.
// Streams:  after wait(), the caller's current stream sees summed gradients.
// Memory:   none of its own: a bucket is a range of the flat gradient. The transport allocates
//           scratch temporarily, at most for all buckets in flight.
// Throws:   CheckError naming rank and parameter, from wait() if one received fewer than m
//           gradients (it took no part in some backward), from backward() if one received more;
//           naming the rank, for wait() without arm(), a second arm() before wait(), and arm(0).
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "common/comm/communicator.hpp"
#include "common/optim/flat_model.hpp"
#include "step4_bucketed_ddp/bucket_plan.hpp"

namespace ladder {

// Starts reducing a bucket [numel] in place.
using StartReduction = std::function<WorkPtr(Communicator& comm, const at::Tensor& bucket)>;
WorkPtr start_all_reduce(Communicator& comm, const at::Tensor& bucket);

class GradientBucketer {
 public:
  // Later steps may use another reduction than an all-reduce; step 5 does.
  GradientBucketer(FlatGradients& grads, const std::vector<GradientBucket>& plan,
                   Communicator& comm, StartReduction start_reduction = start_all_reduce);
  ~GradientBucketer();

  void arm(std::int64_t num_microbatches);
  void wait();

 private:
  struct State;  // what it knows, and what it does with it: gradient_bucketer.cpp
  std::unique_ptr<State> state_;
};

}  // namespace ladder
