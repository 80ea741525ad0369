// Judges a ReferenceDdp: the trainer shows what is summed, held and sent; these checks show when
// and in which pieces it is sent, what an evaluation or a second objective within a step does, and
// what must be refused.
#include <ATen/core/grad_mode.h>
#include <ATen/ops/full_like.h>
#include <ATen/ops/ones.h>

#include "common/comm/self_communicator.hpp"
#include "common/core/memory_ledger.hpp"
#include "common/testing/judge_main.hpp"
#include "step0_single_gpu/judge/judge.hpp"
#include "step1_ddp_reference/reference_ddp.hpp"
#include "step1_ddp_reference/train.hpp"
#include "step4_bucketed_ddp/exercise/arm_and_wait.hpp"

namespace ladder {
namespace step1 {
namespace {

at::Tensor leaf(std::int64_t numel) {
  return at::ones({numel}).set_requires_grad(true);
}

const Order kAll = {0, 2, 3}, kWithoutLarge = {0, 2};

// A model, its ReferenceDdp, and the microbatches of a step. 'large' fills a bucket of its own, which
// is sent first.
struct Setup {
  static constexpr std::size_t kNumBuckets = 2;

  explicit Setup(Communicator& comm) : ddp(flat, comm) {}

  void arm(std::int64_t count) { ddp.arm(count); }
  void backward(const Order& order) {
    used = order;
    loss_sum({}).backward();
  }
  void wait() { ddp.wait(); }

  FlatModel flat{{{"a", {{"first", leaf(15)}, {"frozen", at::ones({4})}}},
                  {"b", {{"small", leaf(7)}, {"large", leaf(300000)}}}}};
  FlatGradients grads{flat};
  double gradient = 1;
  Order used = kAll;
  LossSum own_loss_sum = [this](const Microbatch&) { return sum_of(flat, used) * gradient; };
  ReferenceDdp ddp;
  LossSum loss_sum = ddp.wrap(own_loss_sum);
};

class Checks : public ArmAndWaitChecks<Setup> {
 public:
  using ArmAndWaitChecks::ArmAndWaitChecks;

  void replicas_start_equal(LockstepCommunicator& comm) {
    Setup setup(comm);
    setup.flat.params().fill_(comm.rank());
    setup.ddp.broadcast_parameters();
    for (const auto& [name, param] : setup.flat.named_params()) {
      expect(concat("after broadcast_parameters() '", name, "'"), param, at::full_like(param, 0));
    }
  }

  // The world has one rank, where the transport takes no memory.
  void broadcasts_in_buffers() {
    SelfCommunicator alone, agreements;
    RecordingCommunicator comm(alone, agreements);
    std::vector<NamedTensor> leaves;
    for (const std::int64_t numel : {300, 100, 300, 500, 100, 200})
      leaves.push_back({concat("leaf", leaves.size()), leaf(numel)});
    FlatModel model({{"all", leaves}});
    ReferenceDdp ddp(model, comm);
    comm.set_network(Network::kSlow);
    constexpr std::int64_t kTwoCopies = 4 * (400 + 800), kScalars = 256;
    expect_takes_at_most("broadcast_parameters()", kTwoCopies + kScalars,
                         "two flat copies are enough",
                         [&] { ddp.broadcast_parameters(/*buffer_bytes=*/4 * 400); });
    std::vector<std::int64_t> numels;
    for (const StartedOperation& started : comm.recording().started)
      numels.push_back(started.numel);
    if (numels != std::vector<std::int64_t>{400, 800, 300}) {
      fault(
          concat("with buffers of 400 elements, leaves of 300, 100, 300, 500, 100, 200 travel "
                 "in flat copies of ",
                 listed(numels), " elements, not 400, 800, 300"));
    }
  }

  // Two steps. Rank r's gradients are r + 1 from each microbatch.
  void sends_in_the_last_backward(LockstepCommunicator& comm) {
    Setup setup(comm);
    std::size_t num_before = 0;
    const auto expect_sent = [&](const char* who, std::size_t wanted) {
      expect(concat("the number of all-reduces that ", who, " starts"),
             comm.calls().size() - num_before, wanted);
      num_before = comm.calls().size();
    };
    expect_sent("the constructor", 0);
    setup.gradient = comm.rank() + 1;
    for (int step = 0; step < 2; ++step) {
      setup.backward(kAll);
      expect_sent("a backward outside of a step", 0);
      setup.grads.zero();
      setup.arm(3);
      for (int i = 0; i < 2; ++i) {
        setup.backward(kAll);
        expect_evaluation(setup);
        expect_sent("another than the last of three backwards, or the evaluation after it,", 0);
      }
      // Less than a bucket, and more than any all-reduce takes.
      expect_takes_at_most("the last backward", 4 * 300000 - 1, "is there a copy?",
                           [&] { setup.backward(kAll); });
      expect_sent("the last of three backwards", Setup::kNumBuckets);
      setup.wait();
      expect_sent("wait()", 0);
      expect_sums("the ", setup, 3.0 * comm_.size() * (comm_.size() + 1) / 2);
    }
  }

  void expect_sums(const std::string& prefix, const Setup& setup, double sum) {
    for (const std::size_t i : kAll) {
      const at::Tensor& tensor = setup.flat.leaves()[i].tensor;
      expect(prefix + "sum of the ranks' gradients", tensor.grad(), at::full_like(tensor, sum));
    }
  }

  // As DPO or distillation would: arm() has announced the microbatches of both.
  void counts_all_objectives() {
    const std::string prefix = "two wrapped objectives in a step: the ";
    examine("two wrapped objectives in a step", [&](LockstepCommunicator& comm) {
      Setup setup(comm);
      const LossSum other = setup.ddp.wrap(setup.own_loss_sum);
      for (const bool is_other_last : {true, false}) {
        setup.grads.zero();
        const std::size_t before = comm.calls().size();
        setup.arm(3);
        for (const bool is_other : {!is_other_last, !is_other_last, is_other_last})
          (is_other ? other : setup.loss_sum)({}).backward();
        expect(prefix + "number of all-reduces that the last backward starts",
               comm.calls().size() - before, Setup::kNumBuckets);
        setup.wait();
        expect_sums(prefix, setup, 3 * comm_.size());
      }
    });
  }

  void keeps_models_apart() {
    keeps_apart("two models in turn", kAll, 2 * Setup::kNumBuckets,
                [this](const std::string& whose, const Setup& setup) {
                  expect_sums(whose, setup, 2 * comm_.size());
                });
  }

  void expect_evaluation(const Setup& setup) {
    const at::NoGradGuard no_grad;
    at::Tensor found;
    try {
      found = setup.loss_sum({});
    } catch (const CheckError& error) {
      throw CheckError(
          concat("an evaluation in the middle of a step is counted as one of its "
                 "microbatches, or refused: ",
                 error.what()));
    }
    expect("the loss of an evaluation", found, setup.own_loss_sum({}));
    if (found.defined() && found.requires_grad())
      fault("an evaluation keeps activations: its loss requires gradients");
  }
};

std::vector<std::string> check(Communicator& comm) {
  Checks checks(comm);
  checks.examine("broadcast_parameters()", &Checks::replicas_start_equal);
  checks.examine("broadcast_parameters() with buffers of 1600 bytes",
                 &Checks::broadcasts_in_buffers);
  checks.examine("steps of three microbatches", &Checks::sends_in_the_last_backward);
  checks.counts_all_objectives();
  checks.keeps_models_apart();
  const auto arm = Checks::arm;
  const Checks::Act forward = [](Setup& setup) { setup.loss_sum({}); };
  const Checks::Act backward = Checks::backward(kAll), part = Checks::backward(kWithoutLarge);
  const Checks::Act wait = Checks::wait();
  checks.refuses_wrong_counts(kAll);
  checks.refuses("wait() without arm()", {"wait() without arm()"}, {wait});
  checks.refuses("arm(-1)", {"-1"}, {arm(-1)});
  checks.refuses("wait() after one microbatch of two", {}, {arm(2), backward, wait});
  checks.refuses("the forward of a second microbatch after arm(1)", {},
                 {arm(1), backward, forward});
  checks.refuses("wait() after a backward without 'large'", {"large"}, {arm(1), part, wait});
  checks.refuses("wait() after two backwards, the second without 'large',", {"large"},
                 {arm(2), backward, part, wait});
  return checks.faults();
}

}  // namespace
}  // namespace step1

std::vector<std::string> judge_linked(Communicator& comm) {
  Judge judge({.trainer = step1::trainer(), .sends_in_place = false}, comm);
  return judge.all_cases_are_right() ? step1::check(comm) : judge.faults();
}

}  // namespace ladder
