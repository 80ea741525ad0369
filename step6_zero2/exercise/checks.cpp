// Judges a sharder: the trainer shows what is summed, held between steps and sent; these checks show
// when a unit leaves, what comes and goes meanwhile, and what must be refused.
#include <ATen/Context.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>

#include "common/comm/self_communicator.hpp"
#include "common/testing/hook_watch.hpp"
#include "common/testing/judge_main.hpp"
#include "common/testing/recording_communicator.hpp"
#include "step0_single_gpu/judge/judge.hpp"
#include "step4_bucketed_ddp/exercise/arm_and_wait.hpp"
#include "step5_zero1/exercise/hostile_model.hpp"
#include "step6_zero2/gradient_sharder.hpp"
#include "step6_zero2/train.hpp"

namespace ladder {
namespace step6 {
namespace {

using Order = std::vector<std::size_t>;  // of leaves; backward goes from the last to the first
const Order kForward = {0, 1, 2, 3, 6, 8};
const Order kMixed = {8, 0, 1, 6, 2, 3};    // completes 'block' first, then 'embedding' and 'head'
const Order kIncomplete = {0, 1, 3, 6, 8};  // without 'block.bias'

// What at::empty() returns is full of NaN, for as long as this lives. Fresh memory is often zero by
// chance, which would hide that somebody forgot to write there.
class UninitializedIsNan {
 public:
  UninitializedIsNan() { at::globalContext().setDeterministicAlgorithms(true, false); }
  ~UninitializedIsNan() { at::globalContext().setDeterministicAlgorithms(false, false); }
  UninitializedIsNan(const UninitializedIsNan&) = delete;
  UninitializedIsNan& operator=(const UninitializedIsNan&) = delete;
};

// The units of step 5's hostile model, three of which are trained. Each gradient is 1.
struct Model {
  explicit Model(const Communicator& comm)
      : flat(step5::hostile_units(), shard_multiple(comm.size())),
        plan(plan_shards(flat.layout(), comm.size(), comm.rank())) {}

  void backward(const Order& order) const {
    at::Tensor loss = at::zeros({});
    for (const std::size_t leaf : order) loss = loss + flat.leaves()[leaf].tensor.sum();
    loss.backward();
  }
  // The slices of a shard of ones, after a backward on each of so many ranks.
  std::vector<at::Tensor> wanted(int num_ranks) const {
    const at::Tensor full = at::ones({plan.layout.numel});
    for (const FlatTensor& tensor : plan.layout.tensors) {
      if (tensor.is_trainable) full.narrow(0, tensor.start, tensor.numel).fill_(1 + num_ranks);
    }
    return plan.slices_of_full(full);
  }

  FlatModel flat;
  ShardPlan plan;
};

class Checks : public Examination {
 public:
  using Examination::Examination;

  void expect_shard(const std::string& what, const GradientSharder& sharder, const Model& model,
                    int num_ranks) {
    const std::vector<at::Tensor> found = model.plan.slices_of_shard(sharder.grad_shard());
    for (std::size_t u = 0; u < found.size(); ++u)
      expect(concat(what, " in unit '", model.plan.layout.units[u].name, "'"), found[u],
             model.wanted(num_ranks)[u]);
  }

  // The network is slow: what has left stays on its way until somebody waits for it.
  void overlaps(const std::string& what, const Order& order) {
    examine<RecordingCommunicator>(what, [&](RecordingCommunicator& comm) {
      comm.set_network(Network::kSlow);
      const UninitializedIsNan guard;
      const Model model(comm);
      GradientSharder sharder(model.plan, model.flat.leaves(), comm);
      sharder.grad_shard().fill_(1);
      HookWatch hooks(comm.recording());
      for (const std::size_t leaf : order)
        hooks.watch(model.flat.leaves()[leaf].tensor, model.flat.leaves()[leaf].name);
      sharder.arm(1);
      model.backward(order);
      const Recording& seen = comm.recording();
      const std::vector<GradientBucket> units = plan_unit_buckets(model.plan.layout);
      if (order == kForward) {
        const WorkCounts at_last = hooks.moments().back().counts;
        expect("the number of reduce_scatters that have left before the last gradient is computed",
               at_last.num_started, static_cast<int>(units.size()) - 1);
        expect("the number of reduce_scatters on their way when the last gradient is computed",
               at_last.num_on_their_way(), 1);
      }
      const std::string idle_hooks = hooks.describe_idle_hooks();
      if (!idle_hooks.empty()) fault(idle_hooks);
      sharder.wait();
      expect("the most reduce_scatters on their way at once", seen.most_on_their_way, 1);
      const std::string wrong_order = describe_order("reduce_scatters", seen.started, units);
      if (!wrong_order.empty()) fault(wrong_order);
      expect_shard("the gradient shard, which was 1 everywhere and to which the sums are added,",
                   sharder, model, comm.size());
    });
  }

  void keeps_sharders_apart() {
    examine("two sharders in turn", [&](Communicator& comm) {
      const Model one(comm), other(comm);
      GradientSharder of_one(one.plan, one.flat.leaves(), comm),
          of_other(other.plan, other.flat.leaves(), comm);
      of_one.grad_shard().fill_(1);
      of_other.grad_shard().fill_(1);
      step_within_a_step(of_one, one, of_other, other, kForward);
      expect_shard("two sharders in turn: the first one's shard", of_one, one, 2 * comm.size());
      expect_shard("two sharders in turn: the other's shard", of_other, other, 2 * comm.size());
    });
  }

  // In a world of one rank, where the transport takes no memory.
  void holds_two_units(const std::string& what, Network network) {
    examine(what, [&](Communicator&) {
      SelfCommunicator alone, agreements;
      RecordingCommunicator comm(alone, agreements);
      comm.set_network(network);
      const Model model(comm);
      GradientSharder sharder(model.plan, model.flat.leaves(), comm);
      const MemoryReading before = read_memory();
      reset_memory_peaks();
      sharder.arm(1);
      model.backward(kForward);
      const MemoryReading after = read_memory();
      const std::int64_t two_units = gradient_bytes_in_flight(model.plan.layout, 1);
      expect("the most bytes of full gradients, which the network's speed must not change,",
             after.peak(MemoryCategory::kGradients) - before.live(MemoryCategory::kGradients),
             two_units);
      const std::int64_t largest_grad = 4 * model.flat.leaves()[1].tensor.numel();
      const std::int64_t most = after.peak_bytes - before.total_live_bytes;
      if (most > two_units + largest_grad + 256) {
        fault(concat("backward takes ", most,
                     " bytes, more than those of two units and of a .grad, ",
                     two_units + largest_grad,
                     ": is there a copy for a moment, or a .grad that is in its buffer already?"));
      }
      reset_memory_peaks();
      sharder.wait();
      expect("the number of bytes that wait() takes for a moment",
             read_memory().peak_bytes - after.total_live_bytes, std::int64_t{0});
    });
  }

  void ignores_backwards_that_nobody_armed() {
    examine("backwards before arm() and after wait()", [this](LockstepCommunicator& comm) {
      const Model model(comm), another(comm);
      const auto expect_local = [&](const std::string& when, const Model& of) {
        const std::size_t before = comm.calls().size();
        of.backward(kForward);
        expect(concat("the number of reduce_scatters that a backward ", when, " starts"),
               comm.calls().size() - before, std::size_t{0});
        if (!of.flat.leaves()[0].tensor.grad().defined())
          fault(concat("a backward ", when, " leaves no .grad, which is autograd's then"));
      };
      GradientSharder sharder(model.plan, model.flat.leaves(), comm);
      const GradientSharder unarmed(another.plan, another.flat.leaves(), comm);
      expect_local("before arm()", another);
      sharder.arm(1);
      model.backward(kForward);
      sharder.wait();
      expect_local("after wait()", model);
    });
  }

  using Loop = Acts<GradientSharder, Model>;
  void refuses(const std::string& what, std::vector<std::string> words,
               const std::vector<Loop::Act>& acts) {
    words.push_back(concat("rank ", comm_.rank()));
    examine(what, [&](Communicator& comm) {
      RankAlone alone(comm);
      const Model model(alone);
      GradientSharder sharder(model.plan, model.flat.leaves(), alone);
      expect_error(what, words, [&] {
        for (const Loop::Act& act : acts) act(sharder, model);
      });
    });
  }
};

std::vector<std::string> check(Communicator& comm) {
  Checks checks(comm);
  checks.overlaps("overlap", kForward);
  checks.overlaps("gradients that are ready in another order than the plan's", kMixed);
  checks.overlaps("gradients that are ready in another order on every second rank",
                  comm.rank() % 2 == 0 ? kMixed : kForward);
  checks.keeps_sharders_apart();
  checks.holds_two_units("memory on a slow network", Network::kSlow);
  checks.holds_two_units("memory on a network that delivers at once", Network::kInstant);
  checks.ignores_backwards_that_nobody_armed();
  refuses_wrong_counts(checks, kForward, "head.shift", kIncomplete, "block.bias");
  return checks.faults();
}

}  // namespace
}  // namespace step6

std::vector<std::string> judge_linked(Communicator& comm) {
  Judge judge({.trainer = step6::trainer(), .sums_each_microbatch = true}, comm);
  return judge.all_cases_are_right() ? step6::check(comm) : judge.faults();
}

}  // namespace ladder
