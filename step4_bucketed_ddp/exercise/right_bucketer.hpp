// A bucketer that is right, in small parts: a wrong one overrides a part. Read it after you have
// written your own.
#pragma once

#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/variable.h>

#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include "common/core/check.hpp"
#include "step4_bucketed_ddp/exercise/grader.hpp"

namespace ladder::step4 {

class RightBucketer {
 public:
  RightBucketer(FlatGradients& grads, const std::vector<GradientBucket>& plan, Communicator& comm,
                StartReduction start_reduction)
      : grads_(grads), plan_(plan), comm_(comm), start_reduction_(std::move(start_reduction)) {
    for (const GradientBucket& bucket : plan_) {
      for (const std::int64_t t : bucket.tensors) set_hook(t, std::make_unique<Hook>(*this, t));
    }
  }
  virtual ~RightBucketer() {
    for (const GradientBucket& bucket : plan_) {
      for (const std::int64_t t : bucket.tensors) {
        if (removes_hooks_) set_hook(t, nullptr);
      }
    }
  }
  RightBucketer(const RightBucketer&) = delete;
  RightBucketer& operator=(const RightBucketer&) = delete;

  virtual void arm(std::int64_t num_microbatches) {
    check_may_arm(num_microbatches);
    num_microbatches_ = num_microbatches;
    received_.assign(grads_.layout().tensors.size(), 0);
  }
  virtual void wait() {
    check_is_armed();
    check_is_complete();
    finish();
    works_.clear();
    num_microbatches_ = 0;
  }

 protected:
  virtual void on_gradient(std::int64_t tensor) {
    if (num_microbatches_ == 0) return;
    check_not_too_many(tensor);
    ++received(tensor);
    start_ready();
    poll();
  }
  virtual void start_ready() {
    while (works_.size() < plan_.size() && is_ready(plan_[works_.size()]))
      start(plan_[works_.size()]);
  }
  virtual bool is_ready(const GradientBucket& bucket) {
    return std::all_of(bucket.tensors.begin(), bucket.tensors.end(),
                       [&](std::int64_t t) { return is_complete(t); });
  }
  virtual void start(const GradientBucket& bucket) { works_.push_back(reduce(range(bucket))); }
  virtual WorkPtr reduce(const at::Tensor& bucket) { return start_reduction_(comm_, bucket); }
  virtual void poll() {
    for (const WorkPtr& work : works_) work->test();
  }
  virtual void finish() {
    for (const WorkPtr& work : works_) work->wait();
  }

  virtual void check_may_arm(std::int64_t num_microbatches) {
    check(num_microbatches_ == 0, "rank ", comm_.rank(), ": arm() without wait()");
    check(num_microbatches >= 1, "rank ", comm_.rank(), ": arm(", num_microbatches, ")");
  }
  virtual void check_is_armed() {
    check(num_microbatches_ > 0, "rank ", comm_.rank(), ": wait() without arm()");
  }
  virtual void check_not_too_many(std::int64_t tensor) {
    check(!is_complete(tensor), "rank ", comm_.rank(), ": '", name(tensor), "' has too many");
  }
  virtual void check_is_complete() {
    for (const GradientBucket& bucket : plan_) {
      for (const std::int64_t t : bucket.tensors)
        check(is_complete(t), "rank ", comm_.rank(), ": '", name(t), "' has too few gradients");
    }
  }

  bool is_complete(std::int64_t tensor) { return received(tensor) == num_microbatches_; }
  std::int64_t& received(std::int64_t tensor) {
    return received_[static_cast<std::size_t>(tensor)];
  }
  at::Tensor range(const GradientBucket& bucket) const {
    return grads_.flat().narrow(0, bucket.start, bucket.numel);
  }
  const std::string& name(std::int64_t tensor) const {
    return grads_.layout().tensors[static_cast<std::size_t>(tensor)].name;
  }

  FlatGradients& grads_;
  std::vector<GradientBucket> plan_;
  Communicator& comm_;
  StartReduction start_reduction_;
  std::int64_t num_microbatches_ = 0;   // 0: not armed
  std::vector<std::int64_t> received_;  // gradients, by tensor
  std::vector<WorkPtr> works_;          // in the order in which they were started
  bool removes_hooks_ = true;

 private:
  struct Hook final : torch::autograd::PostAccumulateGradHook {
    Hook(RightBucketer& the_owner, std::int64_t the_tensor)
        : owner(the_owner), tensor(the_tensor) {}
    void operator()(const at::Tensor& /*parameter*/) override { owner.on_gradient(tensor); }
    RightBucketer& owner;
    std::int64_t tensor;
  };
  void set_hook(std::int64_t tensor, std::unique_ptr<Hook> hook) const {
    torch::autograd::impl::set_post_acc_grad_hooks(
        grads_.leaves()[static_cast<std::size_t>(tensor)].tensor, std::move(hook));
  }
};

}  // namespace ladder::step4
