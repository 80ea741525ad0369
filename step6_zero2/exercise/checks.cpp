// Judges a sharder: the trainer shows what is summed, held between steps and sent; these checks show
// when a unit leaves, what comes and goes meanwhile, and what must be refused.
#include <ATen/Context.h>
#include <ATen/ops/ones.h>

#include "common/comm/self_communicator.hpp"
#include "common/testing/judge_main.hpp"
#include "step0_single_gpu/judge/judge.hpp"
#include "step4_bucketed_ddp/exercise/arm_and_wait.hpp"
#include "step5_zero1/exercise/hostile_model.hpp"
#include "step6_zero2/cost_card.hpp"
#include "step6_zero2/gradient_sharder.hpp"
#include "step6_zero2/train.hpp"

namespace ladder {
namespace step6 {
namespace {

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

// The units of step 5's hostile model, three of which are trained, and their sharder, whose shard is
// 1 everywhere at first. Each backward's gradients are 1.
struct Model {
  explicit Model(Communicator& comm)
      : flat(step5::hostile_units(), shard_multiple(comm.size())),
        plan(plan_shards(flat.layout(), comm.size(), comm.rank())),
        sharder(plan, flat.leaves(), comm) {
    sharder.grad_shard().fill_(1);
  }

  void arm(std::int64_t count) { sharder.arm(count); }
  void backward(const Order& order) const { sum_of(flat, order).backward(); }
  void wait() { sharder.wait(); }
  std::vector<GradientBucket> buckets() const { return plan_unit_buckets(plan.layout); }

  // The slices of the shard after so many backwards, over all ranks.
  std::vector<at::Tensor> wanted(int num_backwards) const {
    const at::Tensor full = at::ones({plan.layout.numel});
    for (const FlatTensor& tensor : plan.layout.tensors) {
      if (tensor.is_trainable) full.narrow(0, tensor.start, tensor.numel).fill_(1 + num_backwards);
    }
    return plan.slices_of_full(full);
  }

  FlatModel flat;
  ShardPlan plan;
  GradientSharder sharder;
};

class Checks : public ArmAndWaitChecks<Model> {
 public:
  using ArmAndWaitChecks::ArmAndWaitChecks;

  void expect_shard(const std::string& what, const Model& model, int num_backwards) {
    const std::vector<at::Tensor> found = model.plan.slices_of_shard(model.sharder.grad_shard());
    for (std::size_t u = 0; u < found.size(); ++u)
      expect(concat(what, " in unit '", model.plan.layout.units[u].name, "'"), found[u],
             model.wanted(num_backwards)[u]);
  }

  void sends_one_at_a_time(const std::string& what, const Order& order) {
    const UninitializedIsNan guard;
    overlaps(what, "reduce_scatters", order, [&](Model& model, const Overlap& it) {
      if (!it.idle_hooks.empty()) fault(it.idle_hooks);
      if (order == kForward) {
        expect(
            "the number of reduce_scatters that have left before the last gradient is "
            "computed",
            it.at_last.num_started, kNumUnits - 1);
        expect("the number of reduce_scatters on their way when the last gradient is computed",
               it.at_last.num_on_their_way(), 1);
      }
      model.wait();
      expect("the most reduce_scatters on their way at once", it.seen.most_on_their_way, 1);
      expect_shard("the gradient shard, which was 1 everywhere and to which the sums are added,",
                   model, 2 * comm_.size());
      const std::string wrong = it.wrong_order();
      if (!wrong.empty()) fault(wrong);
    });
  }

  // More than 8 bits can count. Without the other ranks, whose sums would take long: what is added is
  // this rank's own.
  void sends_many(const std::string& what, std::int64_t num_microbatches) {
    examine(what, [&](Communicator& comm) {
      RankAlone alone(comm);
      Model model(alone);
      model.arm(num_microbatches);
      for (std::int64_t i = 0; i < num_microbatches; ++i) model.backward(kForward);
      model.wait();
      expect_shard("the gradient shard, which was 1 everywhere,", model,
                   static_cast<int>(num_microbatches));
    });
  }

  void keeps_sharders_apart() {
    keeps_apart("two sharders in turn", kForward, std::size_t{2 * 2 * kNumUnits},
                [this](const std::string& whose, const Model& model) {
                  expect_shard(whose + "shard", model, 2 * comm_.size());
                });
  }

  // The world has one rank, where the transport takes no memory.
  void holds_two_units(const std::string& what, Network network) {
    examine(what, [&](Communicator&) {
      SelfCommunicator alone, agreements;
      RecordingCommunicator comm(alone, agreements);
      comm.set_network(network);
      Model model(comm);
      const MemoryReading before = read_memory();
      reset_memory_peaks();
      model.arm(1);
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
      expect_takes_at_most("wait()", 0, "is there a copy?", [&] { model.wait(); });
    });
  }

 private:
  static constexpr int kNumUnits = 3;
};

std::vector<std::string> check(Communicator& comm) {
  Checks checks(comm);
  checks.sends_one_at_a_time("overlap", kForward);
  checks.sends_one_at_a_time("gradients that are ready in another order than the plan's", kMixed);
  checks.sends_one_at_a_time("gradients that are ready in another order on every second rank",
                             comm.rank() % 2 == 0 ? kMixed : kForward);
  checks.sends_many("130 microbatches", 130);
  checks.keeps_sharders_apart();
  checks.holds_two_units("memory on a slow network", Network::kSlow);
  checks.holds_two_units("memory on a network that delivers at once", Network::kInstant);
  checks.ignores_backwards_that_nobody_armed("reduce_scatters", kForward);
  checks.refuses_missing_gradients(kForward, "head.shift", kIncomplete, "block.bias");
  checks.refuses_wrong_counts(kForward);
  if (!checks.faults().empty()) return checks.faults();
  const std::unique_ptr<Communicator> half = comm.split(comm.rank() % 2, -comm.rank());
  Checks of_half(*half);
  const std::string in_half = "in a group of every second rank, in reverse order";
  of_half.begin_faults_with(in_half + ": ");
  of_half.sends_one_at_a_time(in_half, kForward);
  return faults_of_groups(of_half.faults(), comm);
}

}  // namespace
}  // namespace step6

std::vector<std::string> judge_linked(Communicator& comm) {
  Judge judge({.trainer = step6::trainer()}, comm);
  return judge.all_cases_are_right() ? step6::check(comm) : judge.faults();
}

}  // namespace ladder
