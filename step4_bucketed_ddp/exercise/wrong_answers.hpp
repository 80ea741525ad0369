// Bucketers that look right and are not. The grader must reject each of them, for the reason given.
#pragma once

#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/variable.h>

#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "common/core/check.hpp"
#include "common/testing/wrong_answer.hpp"
#include "step4_bucketed_ddp/exercise/grader.hpp"

namespace ladder::step4 {

enum class Mistake {
  kMean,
  kEveryMicrobatch,
  kOnlyInWait,
  kInReadyOrder,
  kOwnCopies,
  kLeavesTheLastOut,  // on rank 0
  kNeverPolls,
  kNeverWaits,
  kWaitsInHook,
  kIgnoresUnused,
  kOnlyFirstStep,
};

// A bucketer with a mistake in it.
class WrongBucketer {
 public:
  WrongBucketer(Mistake mistake, FlatModel& model, std::vector<GradientBucket> plan,
                Communicator& comm)
      : mistake_(mistake), model_(model), plan_(std::move(plan)), comm_(comm) {
    for (std::size_t b = 0; b < plan_.size(); ++b) {
      buckets_.push_back(model.grads().narrow(0, plan_[b].start, plan_[b].numel));
      if (mistake == Mistake::kOwnCopies) buckets_[b] = buckets_[b].clone();
      for (const std::int64_t tensor : plan_[b].tensors) {
        torch::autograd::impl::set_post_acc_grad_hooks(leaf(tensor),
                                                       std::make_unique<Hook>(*this, b));
      }
    }
  }
  ~WrongBucketer() {
    for (const GradientBucket& bucket : plan_) {
      for (const std::int64_t tensor : bucket.tensors) {
        torch::autograd::impl::set_post_acc_grad_hooks(leaf(tensor), nullptr);
      }
    }
  }

  void arm(std::int64_t num_microbatches) {
    ++num_steps_;
    passes_.assign(plan_.size(), mistake_ == Mistake::kEveryMicrobatch ? 1 : num_microbatches);
    is_ready_.assign(plan_.size(), false);
    is_armed_ = true;
    next_ = 0;
  }

  void wait() {
    for (std::size_t b = 0; b < plan_.size(); ++b) {
      const bool is_left = mistake_ == Mistake::kOnlyInWait || mistake_ == Mistake::kIgnoresUnused;
      if (is_left && !started_.contains(b)) start(b);
      check(is_ready_[b] || is_left, "rank ", comm_.rank(), ": '",
            model_.layout().tensors[static_cast<std::size_t>(plan_[b].tensors[0])].name,
            "' has no gradient");
    }
    if (mistake_ != Mistake::kNeverWaits) {
      for (const WorkPtr& work : works_) work->wait();
    }
    for (std::size_t b = 0; b < plan_.size(); ++b) {
      at::Tensor range = model_.grads().narrow(0, plan_[b].start, plan_[b].numel);
      if (mistake_ == Mistake::kOwnCopies) range.copy_(buckets_[b]);
      if (mistake_ == Mistake::kMean) range.div_(comm_.size());
    }
    works_.clear();
    started_.clear();
    is_armed_ = false;
  }

 private:
  struct Hook final : torch::autograd::PostAccumulateGradHook {
    Hook(WrongBucketer& the_owner, std::size_t the_bucket) : owner(the_owner), bucket(the_bucket) {}
    void operator()(const at::Tensor& /*parameter*/) override { owner.on_gradient(bucket); }
    WrongBucketer& owner;
    std::size_t bucket;
  };

  at::Tensor leaf(std::int64_t tensor) const {
    return model_.leaves()[static_cast<std::size_t>(tensor)].tensor;
  }

  void on_gradient(std::size_t bucket) {
    if (!is_armed_ || (mistake_ == Mistake::kOnlyFirstStep && num_steps_ > 1)) return;
    if (--passes_[bucket] > 0) return;
    is_ready_[bucket] = true;
    if (mistake_ == Mistake::kOnlyInWait) return;
    if (mistake_ == Mistake::kInReadyOrder || mistake_ == Mistake::kEveryMicrobatch) {
      start(bucket);
      passes_[bucket] = 1;
    } else {
      const bool leaves_out = mistake_ == Mistake::kLeavesTheLastOut && comm_.rank() == 0;
      const std::size_t end = plan_.size() - (leaves_out ? 1 : 0);
      while (next_ < end && is_ready_[next_]) start(next_++);
    }
    if (mistake_ == Mistake::kNeverPolls || works_.empty()) return;
    works_.back()->test();
    if (mistake_ == Mistake::kWaitsInHook) works_.back()->wait();
  }

  void start(std::size_t bucket) {
    if (mistake_ == Mistake::kOwnCopies) {
      buckets_[bucket].copy_(model_.grads().narrow(0, plan_[bucket].start, plan_[bucket].numel));
    }
    if (mistake_ == Mistake::kEveryMicrobatch && started_.contains(bucket))
      works_[bucket_work_[bucket]]->wait();
    bucket_work_[bucket] = works_.size();
    works_.push_back(comm_.all_reduce(buckets_[bucket]));
    started_.insert(bucket);
  }

  Mistake mistake_;
  FlatModel& model_;
  std::vector<GradientBucket> plan_;
  Communicator& comm_;
  std::vector<at::Tensor> buckets_;
  std::vector<std::int64_t> passes_;
  std::vector<bool> is_ready_;
  std::vector<WorkPtr> works_;
  std::set<std::size_t> started_;
  std::map<std::size_t, std::size_t> bucket_work_;
  bool is_armed_ = false;
  int num_steps_ = 0;
  std::size_t next_ = 0;
};

inline MakeBucketer make_wrong(Mistake mistake) {
  return [mistake](FlatModel& model, const std::vector<GradientBucket>& plan, Communicator& comm) {
    const auto wrong = std::make_shared<WrongBucketer>(mistake, model, plan, comm);
    return BucketerAttempt{[wrong](std::int64_t m) { wrong->arm(m); }, [wrong] { wrong->wait(); }};
  };
}

// Rank r's gradient of tensor 0 is r + 1.
inline std::vector<WrongAnswer<Mistake>> wrong_answers(int num_ranks) {
  const double sum = num_ranks * (num_ranks + 1) / 2.0;
  const std::string different = "would wait for each other for ever: rank 0: ";
  return {
      {"mean", Mistake::kMean, 2,
       concat("in another order than the plan's, is ", sum / num_ranks, ", not ", sum)},
      {"every microbatch", Mistake::kEveryMicrobatch, 1,
       "the first two of three backwards start in step 1 is 10, not 0"},
      {"only in wait", Mistake::kOnlyInWait, 1,
       "before the last gradient was computed is 0, not 4"},
      {"in ready order", Mistake::kInReadyOrder, 1, "all-reduce 0 begins at is 48, not 160"},
      {"in each rank's own ready order", Mistake::kInReadyOrder, 2,
       different + "all_reduce of 48 elements; rank 1: all_reduce of 80 elements"},
      {"leaves the last out on rank 0", Mistake::kLeavesTheLastOut, 2,
       different + "nothing more; rank 1: all_reduce of 16 elements"},
      {"own copies", Mistake::kOwnCopies, 1, "a bucket is a copy"},
      {"never polls", Mistake::kNeverPolls, 1, "no hook calls test()"},
      {"never waits", Mistake::kNeverWaits, 1, "were waited for when wait() returns is 0, not 5"},
      {"waits in the hook", Mistake::kWaitsInHook, 1, "which hold it up, is 5, not 0"},
      {"ignores the unused", Mistake::kIgnoresUnused, 1,
       "'tensor2' got no gradient: wait() says nothing, a CheckError is wanted"},
      {"only the first step", Mistake::kOnlyFirstStep, 1,
       "when the last backward of step 2 has ended is 0, not 5"},
  };
}

}  // namespace ladder::step4
