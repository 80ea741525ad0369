// On 1, 2, 3 and 4 ranks.
#include "step4_bucketed_ddp/gradient_bucketer.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/variable.h>

#include <set>

#include "common/comm/rank_values.hpp"
#include "common/comm/self_communicator.hpp"
#include "common/comm/traffic_theory.hpp"
#include "common/core/check.hpp"
#include "common/core/memory_ledger.hpp"
#include "common/testing/closeness.hpp"
#include "common/testing/mpi_world.hpp"
#include "step4_bucketed_ddp/exercise/grader.hpp"

namespace ladder {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

// ---- the grader, and what it must reject -----------------------------------------------------------

enum class Mistake {
  kMean,
  kEveryMicrobatch,
  kOnlyInWait,
  kInReadyOrder,
  kOwnCopies,
  kNeverPolls,
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
    for (const WorkPtr& work : works_) work->wait();
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
      while (next_ < plan_.size() && is_ready_[next_]) start(next_++);
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

template <class Bucketer>
step4::BucketerAttempt attempt_of(std::shared_ptr<Bucketer> bucketer) {
  return {[bucketer](std::int64_t m) { bucketer->arm(m); }, [bucketer] { bucketer->wait(); },
          bucketer};
}

TEST(Grader, AcceptsTheReference) {
  const auto reference = [](FlatModel& model, const std::vector<GradientBucket>& plan,
                            Communicator& comm) {
    return attempt_of(std::make_shared<GradientBucketer>(model, plan, comm));
  };
  EXPECT_THAT(step4::grade(reference, mpi_world().comm()), IsEmpty());
}

TEST(Grader, RejectsEachMistakeForItsReason) {
  const std::vector<std::pair<Mistake, const char*>> mistakes = {
      {Mistake::kMean, "elements are wrong"},
      {Mistake::kEveryMicrobatch, "the first two of three backwards in step 1: 10, wanted 0"},
      {Mistake::kOnlyInWait, "before the last gradient was computed: 0, wanted 4"},
      {Mistake::kInReadyOrder, "that all-reduce 0 begins at"},
      {Mistake::kOwnCopies, "a bucket is a copy"},
      {Mistake::kNeverPolls, "no hook calls test()"},
      {Mistake::kWaitsInHook, "waits inside backward"},
      {Mistake::kIgnoresUnused, "wait() must throw CheckError"},
      {Mistake::kOnlyFirstStep, "when the last backward of step 2 has ended"},
  };
  for (const auto& [mistake, reason] : mistakes) {
    if (mistake == Mistake::kMean && mpi_world().comm().size() == 1) continue;  // is the sum there
    const auto wrong = [kind = mistake](FlatModel& model, const std::vector<GradientBucket>& plan,
                                        Communicator& comm) {
      return attempt_of(std::make_shared<WrongBucketer>(kind, model, plan, comm));
    };
    EXPECT_THAT(step4::grade(wrong, mpi_world().comm()), Contains(HasSubstr(reason)))
        << "mistake " << static_cast<int>(mistake);
  }
}

// ---- the reference ---------------------------------------------------------------------------------

// A model whose gradient on each rank is whatever values_of() says.
struct Model {
  Model() : flat(units()) {}

  static std::vector<Unit> units() {
    const auto leaf = [](at::IntArrayRef shape) { return at::ones(shape).set_requires_grad(true); };
    return {{"embedding", {{"wte", leaf({33, 7})}}},
            {"block", {{"weight", leaf({16, 16})}, {"bias", leaf({1})}, {"large", leaf({70, 70})}}},
            {"head", {{"gain", leaf({5})}, {"frozen", at::ones({9})}, {"shift", leaf({5})}}}};
  }

  at::Tensor leaf(std::size_t i) const { return flat.leaves()[i].tensor; }

  // One microbatch of this rank. wte is used twice, as a tied embedding is.
  void backward(int rank, std::uint64_t seed) {
    at::Tensor loss = at::zeros({});
    for (std::size_t i = 0; i < flat.leaves().size(); ++i) {
      const at::Tensor values = values_of(rank, leaf(i).numel(), at::kFloat, seed + i);
      loss = loss + (leaf(i).flatten() * values).sum();
    }
    loss =
        loss + (leaf(0).flatten() * values_of(rank, leaf(0).numel(), at::kFloat, seed + 50)).sum();
    loss.backward();
  }

  FlatModel flat;
};

// The gradients that several ranks must end with: each rank's own, without communication, folded.
at::Tensor fold_of_ranks(int num_ranks, std::int64_t num_microbatches, std::uint64_t seed) {
  at::Tensor sum;
  for (int r = 0; r < num_ranks; ++r) {
    Model alone;
    for (std::int64_t j = 0; j < num_microbatches; ++j) {
      alone.backward(r, seed + 100 * static_cast<std::uint64_t>(j));
    }
    sum = r == 0 ? alone.flat.grads().clone() : sum + alone.flat.grads();
  }
  return sum;
}

TEST(GradientBucketer, SumsAreTheFoldInRankOrderAndCostWhatTheorySays) {
  Communicator& comm = mpi_world().comm();
  for (const std::int64_t capacity : {1, 256, 2000, 1 << 20}) {
    Model model;
    const std::vector<GradientBucket> plan = plan_buckets(model.flat.layout(), capacity);
    GradientBucketer bucketer(model.flat, plan, comm);
    for (const std::int64_t m : {1, 3}) {
      const Traffic before = comm.traffic();
      model.flat.zero_grad();
      bucketer.arm(m);
      for (std::int64_t j = 0; j < m; ++j) {
        model.backward(comm.rank(), 7 + 100 * static_cast<std::uint64_t>(j));
      }
      bucketer.wait();
      EXPECT_TRUE(bits_equal(model.flat.grads(), fold_of_ranks(comm.size(), m, 7)))
          << "capacity " << capacity << ", " << m << " microbatches";
      Traffic sent = comm.traffic(), theory;
      sent -= before;
      for (const GradientBucket& bucket : plan) {
        theory += all_reduce_traffic(bucket.numel, 4, comm.size(), comm.rank());
      }
      EXPECT_EQ(sent, theory);
    }
  }
}

TEST(GradientBucketer, LeavesTheFrozenParameterAlone) {
  Communicator& comm = mpi_world().comm();
  Model model;
  GradientBucketer bucketer(model.flat, plan_buckets(model.flat.layout(), 1 << 20), comm);
  const FlatTensor& frozen = model.flat.layout().tensors[5];
  const at::Tensor place = model.flat.grads().narrow(0, frozen.start, frozen.padded_numel);
  place.fill_(comm.rank() + 1);
  bucketer.arm(1);
  model.backward(comm.rank(), 1);
  bucketer.wait();
  EXPECT_EQ(place.min().item<float>(), comm.rank() + 1);
  EXPECT_EQ(place.max().item<float>(), comm.rank() + 1);
}

TEST(GradientBucketer, HoldsNoSecondCopyOfTheGradients) {
  install_memory_ledger();
  Communicator& comm = mpi_world().comm();
  Model model;
  const std::int64_t before = read_memory().total_live_bytes;
  GradientBucketer bucketer(model.flat, plan_buckets(model.flat.layout(), 2000), comm);
  EXPECT_EQ(read_memory().total_live_bytes, before);
  bucketer.arm(1);
  model.backward(comm.rank(), 1);
  bucketer.wait();
  EXPECT_EQ(read_memory().total_live_bytes, before);
}

TEST(GradientBucketer, NamesRankAndParameterThatHasHadTooFewGradients) {
  SelfCommunicator alone;
  Model model;
  GradientBucketer bucketer(model.flat, plan_buckets(model.flat.layout(), 1 << 20), alone);
  bucketer.arm(2);
  model.backward(0, 1);
  (model.leaf(0).sum() + model.leaf(1).sum()).backward();
  EXPECT_THAT([&] { bucketer.wait(); },
              ::testing::ThrowsMessage<CheckError>(::testing::AllOf(
                  HasSubstr("rank 0"), HasSubstr("'shift'"), HasSubstr("1 of 2 gradients"))));
}

TEST(GradientBucketer, RefusesMoreGradientsThanArmed) {
  SelfCommunicator alone;
  Model model;
  GradientBucketer bucketer(model.flat, plan_buckets(model.flat.layout(), 1 << 20), alone);
  EXPECT_THROW(bucketer.wait(), CheckError);
  EXPECT_THROW(bucketer.arm(0), CheckError);
  bucketer.arm(1);
  EXPECT_THROW(bucketer.arm(1), CheckError);
  model.backward(0, 1);
  EXPECT_THAT([&] { model.backward(0, 1); },
              ::testing::Throws<std::exception>(::testing::Property(
                  &std::exception::what, HasSubstr("after its bucket was sent"))));
}

TEST(GradientBucketer, TakesItsHooksAlong) {
  Communicator& comm = mpi_world().comm();
  Model model;
  { GradientBucketer bucketer(model.flat, plan_buckets(model.flat.layout(), 1 << 20), comm); }
  model.backward(comm.rank(), 1);  // calls no hook of an object that is gone
  EXPECT_TRUE(bits_equal(model.flat.grads(), [&] {
    Model alone;
    alone.backward(comm.rank(), 1);
    return alone.flat.grads();
  }()));
}

}  // namespace
}  // namespace ladder
