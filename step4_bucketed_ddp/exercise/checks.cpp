// Judges a bucketer: the trainer shows what is summed, held and sent; these checks show when a
// bucket leaves, and what must be refused.
#include <ATen/ops/full_like.h>
#include <torch/csrc/autograd/variable.h>

#include <algorithm>

#include "common/comm/self_communicator.hpp"
#include "common/core/memory_ledger.hpp"
#include "common/testing/judge_main.hpp"
#include "step0_single_gpu/judge/judge.hpp"
#include "step4_bucketed_ddp/exercise/arm_and_wait.hpp"
#include "step4_bucketed_ddp/exercise/bucketed_model.hpp"
#include "step4_bucketed_ddp/train.hpp"

namespace ladder {
namespace step4 {
namespace {

// The lesson's recurrence, e_b = max(r_b, e_{b-1}) + c_b, without a clock: backward takes a unit of
// time for each element of a gradient, and so does the wire for each that is sent.
class Wire {
 public:
  void send(double ready, std::int64_t numel) {
    const auto takes = static_cast<double>(numel);
    end_ = std::max(ready, end_) + takes;
    in_flight_ += takes;
  }
  double exposed_percent(double backward_end) const {
    return 100 * (end_ - backward_end) / in_flight_;
  }

 private:
  double end_ = 0, in_flight_ = 0;
};

class Checks : public ArmAndWaitChecks<BucketedModel> {
 public:
  using ArmAndWaitChecks::ArmAndWaitChecks;

  // The last gradient completes the last bucket; all others have left by then, and backward has
  // waited for none.
  void sends_early() {
    overlaps("overlap", "all-reduces", kForward, [&](BucketedModel& /*model*/, const Overlap& it) {
      expect("the number of all-reduces that have left before the last gradient was computed",
             it.at_last.num_started, BucketedModel::kNumBuckets - 1);
      expect_all_left(it);
    });
  }
  void sends_in_order(const std::string& what, const Order& order) {
    overlaps(what, "all-reduces", order, [&](BucketedModel& /*model*/, const Overlap& it) {
      expect_all_left(it);
      const std::string wrong = it.wrong_order();
      if (!wrong.empty()) fault(wrong);
    });
  }
  void makes_progress() {
    for (const Order& order : {kForward, kMixed}) {
      overlaps("progress", "all-reduces", order, [&](BucketedModel& /*model*/, const Overlap& it) {
        if (!it.idle_hooks.empty()) fault(it.idle_hooks);
      });
    }
  }
  void expect_all_left(const Overlap& it) {
    expect("the number of all-reduces that have left when backward ends", it.seen.num_started,
           BucketedModel::kNumBuckets);
    expect("the number of all-reduces that backward waits for, which hold it up,",
           it.seen.num_waited_for, 0);
  }

  Target exposed() {
    Wire found, of_plan, late;
    double now = 0;
    overlaps("target", "all-reduces", kForward, [&](BucketedModel& model, const Overlap& it) {
      std::vector<double> computed(model.flat.leaves().size());  // when, of each leaf
      std::size_t num_sent = 0;
      for (std::size_t i = 0; i < kForward.size(); ++i) {
        const std::size_t leaf = kForward[kForward.size() - 1 - i];
        computed[leaf] = now += static_cast<double>(model.flat.leaves()[leaf].tensor.numel());
        const auto num_started = static_cast<std::size_t>(it.moments[i + 1].counts.num_started);
        while (num_sent < num_started) found.send(now, it.seen.started[num_sent++].numel);
      }
      for (const GradientBucket& bucket : model.plan) {
        double ready = 0;
        for (const std::int64_t tensor : bucket.tensors)
          ready = std::max(ready, computed[static_cast<std::size_t>(tensor)]);
        of_plan.send(ready, bucket.numel);
        late.send(now, bucket.numel);
      }
    });
    return {.found = found.exposed_percent(now),
            .solution = of_plan.exposed_percent(now),
            .naive = late.exposed_percent(now),
            .what = "% of the time in flight is exposed, in the judge's model of four buckets",
            .naive_is = "all buckets leave after backward",
            .hint = "does each bucket leave in the hook of its last gradient?"};
  }

  void keeps_bucketers_apart() {
    keeps_apart("two bucketers in turn", kForward, 2 * BucketedModel::kNumBuckets,
                [this](const std::string& whose, const BucketedModel& model) {
                  for (const std::size_t leaf : kForward) {
                    const auto& [name, tensor] = model.flat.leaves()[leaf];
                    expect(concat(whose, "sum of '", name, "'"), tensor.grad(),
                           at::full_like(tensor, 2 * comm_.size()));
                  }
                });
  }

  void reduces_as_it_is_told(LockstepCommunicator& comm) {
    int num_calls = 0;
    BucketedModel model(comm, [&](Communicator& to, const at::Tensor& bucket) {
      ++num_calls;
      return to.all_reduce(bucket);
    });
    model.arm(1);
    model.backward(kForward);
    model.wait();
    expect("the number of buckets that start_reduction is called for", num_calls,
           BucketedModel::kNumBuckets);
  }

  // The world has one rank, where the transport takes no memory.
  void holds_no_copy() {
    SelfCommunicator alone;
    BucketedModel model(alone);
    const std::int64_t largest = model.flat.leaves()[2].tensor.numel();
    expect_takes_at_most("a step", 4 * largest + 256 /* backward's own, and scalars */,
                         "is there a copy of what is sent?", [&] {
                           model.arm(1);
                           model.backward(kForward);
                           model.wait();
                         });
  }

  void removes_its_hooks() {
    SelfCommunicator alone;
    std::vector<NamedTensor> leaves;
    {
      const BucketedModel short_lived(alone);
      leaves = short_lived.flat.leaves();
    }
    for (const auto& [name, tensor] : leaves) {
      if (!tensor.requires_grad()) continue;
      if (torch::autograd::impl::post_acc_grad_hooks(tensor) == nullptr) continue;
      return fault(concat("'", name, "' keeps its hook when the bucketer is gone"));
    }
  }
};

std::vector<std::string> faults_of_trainings(Communicator& comm) {
  Judge judge({.trainer = step4::trainer(),
               .vary =
                   [](TrainOptions& options, int number) {
                     double& capacity_mb = options.set<BucketOptions>().capacity_mb;
                     if (number % 2 == 1) capacity_mb = 4.0 / 1024;
                     const bool is_drawn = number == static_cast<int>(cases().size());
                     if (is_drawn) capacity_mb = static_cast<double>(1 + options.seed % 40) / 1024;
                   }},
              comm);
  judge.all_cases_are_right();
  return judge.faults();
}

std::vector<std::string> faults_of_overlap(Communicator& comm) {
  Checks checks(comm);
  checks.sends_early();
  return checks.faults();
}

std::vector<std::string> faults_of_order(Communicator& comm) {
  Checks checks(comm);
  checks.sends_in_order("gradients that are ready in the plan's order", kForward);
  checks.sends_in_order("gradients that are ready in another order than the plan's", kMixed);
  checks.sends_in_order("gradients that are ready in another order on every second rank",
                        comm.rank() % 2 == 0 ? kMixed : kForward);
  return checks.faults();
}

std::vector<std::string> faults_of_progress(Communicator& comm) {
  Checks checks(comm);
  checks.makes_progress();
  return checks.faults();
}

std::vector<std::string> other_faults(Communicator& comm) {
  const Order incomplete = {0, 1, 3, 5, 6};  // without b.weight
  Checks checks(comm);
  checks.keeps_bucketers_apart();
  checks.examine("another reduction than the all-reduce, as in step 5",
                 &Checks::reduces_as_it_is_told);
  checks.examine("memory while gradients are sent", &Checks::holds_no_copy);
  checks.ignores_backwards_that_nobody_armed("all-reduces", kForward);
  checks.refuses("wait() after a backward without 'b.weight'", {"b.weight"},
                 {Checks::arm(1), Checks::backward(incomplete), Checks::wait()});
  checks.refuses_missing_gradients(kForward, "c.bias", incomplete, "b.weight");
  checks.refuses("a second gradient of 'c.bias' after arm(1), while its bucket waits,", {"c.bias"},
                 {Checks::arm(1), Checks::backward({6}), Checks::backward({6})});
  checks.refuses_wrong_counts(kForward);
  checks.examine("the destructor", &Checks::removes_its_hooks);
  return checks.faults();
}

}  // namespace
}  // namespace step4

std::vector<std::string> judge_linked(Communicator& comm) {
  return faults_in_levels(
      {{"flat messages", [&] { return step4::faults_of_trainings(comm); }},
       {"overlap", [&] { return step4::faults_of_overlap(comm); }},
       {"one order", [&] { return step4::faults_of_order(comm); }},
       {"progress", [&] { return step4::faults_of_progress(comm); }},
       {"errors, a second bucketer, memory", [&] { return step4::other_faults(comm); }}});
}

std::vector<Target> measure_linked(Communicator& comm) {
  return {step4::Checks(comm).exposed()};
}

}  // namespace ladder
