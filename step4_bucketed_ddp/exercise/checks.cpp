// Judges a bucketer: the trainer shows what is summed, held and sent; these checks show when a
// bucket leaves, and what must be refused.
#include <ATen/ops/full_like.h>
#include <torch/csrc/autograd/variable.h>

#include "common/comm/self_communicator.hpp"
#include "common/core/memory_ledger.hpp"
#include "common/testing/hook_watch.hpp"
#include "common/testing/judge_main.hpp"
#include "common/testing/recording_communicator.hpp"
#include "step0_single_gpu/judge/judge.hpp"
#include "step4_bucketed_ddp/exercise/arm_and_wait.hpp"
#include "step4_bucketed_ddp/exercise/small_model.hpp"
#include "step4_bucketed_ddp/gradient_bucketer.hpp"
#include "step4_bucketed_ddp/train.hpp"

namespace ladder {
namespace step4 {
namespace {

class Checks : public Examination {
 public:
  using Examination::Examination;

  // The network is slow: what has left stays on its way until somebody waits for it. The last
  // gradient completes the last bucket; all others have left by then, in the plan's order, and
  // backward has waited for none.
  void overlaps(const std::string& what, const Order& order) {
    examine<RecordingCommunicator>(what, [&](RecordingCommunicator& comm) {
      SmallModel model;
      GradientBucketer bucketer(model.grads, model.plan, comm);
      comm.set_network(Network::kInstant);  // in the step before, which leaves its traces
      bucketer.arm(1);
      model.backward(order);
      bucketer.wait();
      comm.forget();
      comm.set_network(Network::kSlow);
      HookWatch hooks(comm.recording());
      for (const std::size_t tensor : order) hooks.watch(model.leaf(tensor), model.name(tensor));
      bucketer.arm(1);
      model.backward(order);
      const Recording& seen = comm.recording();
      if (order == kForward) {
        expect("the number of all-reduces that have left before the last gradient was computed",
               hooks.moments().back().counts.num_started, SmallModel::kNumBuckets - 1);
      }
      expect("the number of all-reduces that have left when backward ends", seen.num_started,
             SmallModel::kNumBuckets);
      expect("the number of all-reduces that backward waits for, which hold it up,",
             seen.num_waited_for, 0);
      const std::string wrong_order = describe_order("all-reduces", seen.started, model.plan);
      if (!wrong_order.empty()) fault(wrong_order);
      const std::string idle_hooks = hooks.describe_idle_hooks();
      if (!idle_hooks.empty()) fault(idle_hooks);
      bucketer.wait();
    });
  }

  void keeps_bucketers_apart() {
    examine("two bucketers in turn", [&](LockstepCommunicator& comm) {
      const auto sum = static_cast<float>(2 * comm.size());
      SmallModel one, other;
      GradientBucketer of_one(one.grads, one.plan, comm), of_other(other.grads, other.plan, comm);
      step_within_a_step(of_one, one, of_other, other, kForward);
      expect("two bucketers in turn: the number of all-reduces of both", comm.calls().size(),
             std::size_t{2 * SmallModel::kNumBuckets});
      for (const std::size_t tensor : kForward) {
        expect(concat("two bucketers in turn: the first one's sum of '", one.name(tensor), "'"),
               one.leaf(tensor).grad(), at::full_like(one.leaf(tensor), sum));
        expect(concat("two bucketers in turn: the other's sum of '", one.name(tensor), "'"),
               other.leaf(tensor).grad(), at::full_like(other.leaf(tensor), sum));
      }
    });
  }

  void reduces_as_it_is_told() {
    examine("another reduction than the all-reduce, as in step 5", [&](Communicator& comm) {
      SmallModel model;
      int num_calls = 0;
      GradientBucketer bucketer(model.grads, model.plan, comm,
                                [&](Communicator& to, const at::Tensor& bucket) {
                                  ++num_calls;
                                  return to.all_reduce(bucket);
                                });
      bucketer.arm(1);
      model.backward(kForward);
      bucketer.wait();
      expect("the number of buckets that start_reduction is called for", num_calls,
             SmallModel::kNumBuckets);
    });
  }

  void ignores_backwards_that_nobody_armed() {
    examine("backwards before arm() and after wait()", [&](LockstepCommunicator& comm) {
      SmallModel model;
      GradientBucketer bucketer(model.grads, model.plan, comm);
      const auto expect_local = [&](const std::string& when) {
        const std::size_t before = comm.calls().size();
        model.backward(kForward);
        expect(concat("the number of all-reduces that a backward ", when, " starts"),
               comm.calls().size() - before, std::size_t{0});
      };
      expect_local("before arm()");
      bucketer.arm(1);
      model.backward(kForward);
      bucketer.wait();
      expect_local("after wait()");
    });
  }

  // In a world of one rank, where the transport takes no memory.
  void holds_no_copy() {
    examine("memory while gradients are sent", [this](Communicator&) {
      SelfCommunicator alone;
      SmallModel model;
      GradientBucketer bucketer(model.grads, model.plan, alone);
      const std::int64_t before = read_memory().total_live_bytes;
      reset_memory_peaks();
      bucketer.arm(1);
      model.backward(kForward);
      bucketer.wait();
      const std::int64_t found = read_memory().peak_bytes - before;
      const std::int64_t most = 4 * model.leaf(2).numel() + 256;  // backward's own, and scalars
      if (found > most)
        fault(concat("a step takes ", found, " bytes beside the gradients, not ", most,
                     ": is there a copy of what is sent?"));
    });
  }

  using Loop = Acts<GradientBucketer, SmallModel>;
  void refuses(const std::string& what, std::vector<std::string> words,
               const std::vector<Loop::Act>& acts) {
    words.push_back(concat("rank ", comm_.rank()));
    examine(what, [&](Communicator& comm) {
      RankAlone alone(comm);
      SmallModel model;
      GradientBucketer bucketer(model.grads, model.plan, alone);
      expect_error(what, words, [&] {
        for (const Loop::Act& act : acts) act(bucketer, model);
      });
    });
  }

  void removes_its_hooks() {
    examine("the destructor", [&](Communicator&) {
      SelfCommunicator alone;
      SmallModel model;
      { const GradientBucketer short_lived(model.grads, model.plan, alone); }
      for (const std::size_t tensor : kForward) {
        if (torch::autograd::impl::post_acc_grad_hooks(model.leaf(tensor)) == nullptr) continue;
        return fault(concat("'", model.name(tensor), "' keeps its hook when the bucketer is gone"));
      }
    });
  }
};

std::vector<std::string> check(Communicator& comm) {
  const Order incomplete = {0, 1, 3, 5, 6};  // without b.weight
  Checks checks(comm);
  checks.overlaps("overlap", kForward);
  checks.overlaps("gradients that are ready in another order than the plan's", kMixed);
  checks.overlaps("gradients that are ready in another order on every second rank",
                  comm.rank() % 2 == 0 ? kMixed : kForward);
  checks.keeps_bucketers_apart();
  checks.reduces_as_it_is_told();
  checks.holds_no_copy();
  checks.ignores_backwards_that_nobody_armed();
  using Loop = Checks::Loop;
  checks.refuses("wait() after a backward without 'b.weight'", {"b.weight"},
                 {Loop::arm(1), Loop::backward(incomplete), Loop::wait()});
  refuses_wrong_counts(checks, kForward, "c.bias", incomplete, "b.weight");
  checks.refuses("a second gradient of 'c.bias' after arm(1), while its bucket waits,", {"c.bias"},
                 {Loop::arm(1), Loop::backward({6}), Loop::backward({6})});
  checks.refuses("a second wait()", {},
                 {Loop::arm(1), Loop::backward(kForward), Loop::wait(), Loop::wait()});
  checks.removes_its_hooks();
  return checks.faults();
}

}  // namespace
}  // namespace step4

std::vector<std::string> judge_linked(Communicator& comm) {
  Judge judge({.trainer = step4::trainer(),
               .vary =
                   [](TrainOptions& options, int number) {
                     if (number % 2 == 1) options.set<BucketOptions>().capacity_mb = 4.0 / 1024;
                   }},
              comm);
  return judge.all_cases_are_right() ? step4::check(comm) : judge.faults();
}

}  // namespace ladder
