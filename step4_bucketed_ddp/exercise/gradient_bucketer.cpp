// Exercise of step 4: start each bucket's all-reduce while backward is still running.
//
// The hooks are set for you: hooks_ calls on_gradient(tensor) each time a backward has added to
// that tensor's gradient. Write the rest as step4_bucketed_ddp/gradient_bucketer.hpp describes it,
// then run:
//   ./ladder exercise step4_bucketed_ddp
#include "step4_bucketed_ddp/gradient_bucketer.hpp"

#include "common/core/check.hpp"

namespace ladder {

WorkPtr start_all_reduce(Communicator& comm, const at::Tensor& bucket) {
  return comm.all_reduce(bucket);
}

GradientBucketer::GradientBucketer(FlatGradients& grads, const std::vector<GradientBucket>& plan,
                                   Communicator& comm, StartReduction start_reduction)
    : grads_(grads),
      comm_(comm),
      start_reduction_(std::move(start_reduction)),
      pending_(grads.leaves().size()),
      hooks_(grads.leaves(), [this](std::size_t tensor) { on_gradient(tensor); }) {
  for (const GradientBucket& planned : plan) {
    Bucket& bucket = buckets_.emplace_back();
    bucket.gradients = grads.flat().narrow(0, planned.start, planned.numel);
    for (const std::int64_t index : planned.tensors) {
      const auto tensor = static_cast<std::size_t>(index);
      bucket.tensors.push_back(tensor);
      pending_[tensor].bucket = buckets_.size() - 1;
    }
  }
}

void GradientBucketer::arm(std::int64_t num_microbatches) {
  // How often will on_gradient() be called for a tensor before its gradient is complete? And how
  // many tensors must be complete before a bucket may be sent?
  static_cast<void>(num_microbatches);
  not_implemented("step4_bucketed_ddp: GradientBucketer::arm()");
}

void GradientBucketer::on_gradient(std::size_t tensor) {
  // Count. When a bucket is ready, start what may start. Then let the transport make progress.
  static_cast<void>(tensor);
  not_implemented("step4_bucketed_ddp: GradientBucketer::on_gradient()");
}

void GradientBucketer::start_ready_buckets() {
  // start_reduction_(comm_, gradients) starts a bucket's all-reduce. All ranks must start them in
  // the same order, but autograd may finish them in a different one.
  not_implemented("step4_bucketed_ddp: GradientBucketer::start_ready_buckets()");
}

void GradientBucketer::poll() {
  // test() lets a started operation make progress, and costs next to nothing.
  not_implemented("step4_bucketed_ddp: GradientBucketer::poll()");
}

void GradientBucketer::wait() {
  // What if a bucket never became ready? Waiting for it would take forever.
  not_implemented("step4_bucketed_ddp: GradientBucketer::wait()");
}

}  // namespace ladder
