#include "step4_bucketed_ddp/gradient_bucketer.hpp"

#include <utility>

#include "common/core/check.hpp"
#include "common/core/trace.hpp"
#include "step4_bucketed_ddp/gradient_hooks.hpp"

namespace ladder {

WorkPtr start_all_reduce(Communicator& comm, const at::Tensor& bucket) {
  return comm.all_reduce(bucket);
}

struct GradientBucketer::State {
  struct Bucket {
    at::Tensor gradients;  // [numel], a view of the flat gradient
    std::vector<std::size_t> tensors;
    std::size_t num_waiting = 0;  // tensors whose gradient is not complete yet
    WorkPtr reduction;            // null until it has started
  };
  struct Pending {  // for one tensor
    std::size_t bucket = 0;
    std::int64_t num_passes = 0;  // backward passes that have yet to add to it
  };
  std::vector<Bucket> buckets_;        // in the plan's order
  std::vector<Pending> pending_;       // by tensor of the layout; a frozen one is in no bucket
  std::int64_t num_microbatches_ = 0;  // 0: not armed
  std::size_t num_started_ = 0;        // since arm()
  std::size_t num_finished_ = 0;       // of these, as far as poll() has seen

  FlatGradients& grads_;
  Communicator& comm_;
  StartReduction start_reduction_;
  GradientHooks hooks_;

  State(FlatGradients& grads, const std::vector<GradientBucket>& plan, Communicator& comm,
        StartReduction start_reduction)
      : grads_(grads),
        comm_(comm),
        start_reduction_(std::move(start_reduction)),
        hooks_(grads.leaves(), [this](std::size_t tensor) { on_gradient(tensor); }) {
    pending_.resize(grads.leaves().size());
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

  void arm(std::int64_t num_microbatches) {
    check(num_microbatches_ == 0, "rank ", comm_.rank(),
          ": GradientBucketer: arm() again without wait()");
    check(num_microbatches >= 1, "rank ", comm_.rank(), ": GradientBucketer: arm(",
          num_microbatches, ") expects no backward pass");
    num_microbatches_ = num_microbatches;
    num_started_ = num_finished_ = 0;
    for (Bucket& bucket : buckets_) {
      bucket.num_waiting = bucket.tensors.size();
      for (const std::size_t tensor : bucket.tensors)
        pending_[tensor].num_passes = num_microbatches;
    }
  }

  // A backward has added to this tensor's gradient.
  void on_gradient(std::size_t tensor) {
    if (num_microbatches_ == 0) return;
    Pending& pending = pending_[tensor];
    check(pending.num_passes > 0, "rank ", comm_.rank(), ": parameter '",
          grads_.leaves()[tensor].name, "' received more than the ", num_microbatches_,
          " gradient(s) that arm() announced, after its bucket was sent");
    --pending.num_passes;
    if (pending.num_passes == 0 && --buckets_[pending.bucket].num_waiting == 0)
      start_ready_buckets();
    poll();
  }

  void start_ready_buckets() {
    while (num_started_ < buckets_.size() && buckets_[num_started_].num_waiting == 0) {
      const Span span("bucket", {"bucket", static_cast<std::int64_t>(num_started_)});
      Bucket& bucket = buckets_[num_started_++];
      bucket.reduction = start_reduction_(comm_, bucket.gradients);
    }
  }

  void poll() {
    while (num_finished_ < num_started_ && buckets_[num_finished_].reduction->test())
      ++num_finished_;
  }

  void wait() {
    check(num_microbatches_ > 0, "rank ", comm_.rank(), ": GradientBucketer: wait() without arm()");
    for (const Bucket& bucket : buckets_) {
      for (const std::size_t tensor : bucket.tensors) {
        check(pending_[tensor].num_passes == 0, "rank ", comm_.rank(), ": parameter '",
              grads_.leaves()[tensor].name, "' received ",
              num_microbatches_ - pending_[tensor].num_passes, " of ", num_microbatches_,
              " gradients: it took no part in a backward pass. Freeze it (requires_grad false), or "
              "use it on every rank");
      }
    }
    for (Bucket& bucket : buckets_) {
      bucket.reduction->wait();
      bucket.reduction.reset();
    }
    num_microbatches_ = 0;
  }
};

GradientBucketer::GradientBucketer(FlatGradients& grads, const std::vector<GradientBucket>& plan,
                                   Communicator& comm, StartReduction start_reduction)
    : state_(std::make_unique<State>(grads, plan, comm, std::move(start_reduction))) {}

GradientBucketer::~GradientBucketer() = default;

void GradientBucketer::arm(std::int64_t num_microbatches) {
  state_->arm(num_microbatches);
}

void GradientBucketer::wait() {
  state_->wait();
}

}  // namespace ladder
