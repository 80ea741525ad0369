// Judges a ReferenceDdp: the trainer shows what is summed, held and sent; these checks show when
// and in which pieces it is sent, what an evaluation or a second objective within a step does, and
// what must be refused.
#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/full_like.h>
#include <ATen/ops/ones.h>

#include <algorithm>
#include <functional>

#include "common/comm/self_communicator.hpp"
#include "common/core/memory_ledger.hpp"
#include "common/testing/judge_main.hpp"
#include "common/testing/recording_communicator.hpp"
#include "step0_single_gpu/judge/judge.hpp"
#include "step1_ddp_reference/reference_ddp.hpp"
#include "step1_ddp_reference/train.hpp"

namespace ladder {
namespace step1 {
namespace {

// 'large' fills a bucket of its own, which is sent first.
struct SmallModel {
  static constexpr std::size_t kNumBuckets = 2;

  static at::Tensor leaf(std::int64_t numel) { return at::ones({numel}).set_requires_grad(true); }

  at::Tensor first = leaf(15), small = leaf(7), large = leaf(300000);
  FlatModel flat{{{"a", {{"first", first}, {"frozen", at::ones({4})}}},
                  {"b", {{"small", small}, {"large", large}}}}};
  FlatGradients grads{flat};
  double gradient = 1;
  bool uses_large = true;
  LossSum loss_sum = [this](const Microbatch&) {
    const at::Tensor loss = (first.sum() + small.sum()) * gradient;
    return uses_large ? loss + large.sum() * gradient : loss;
  };
};

// A model, its ReferenceDdp, and the microbatches of a step.
struct Setup {
  explicit Setup(Communicator& comm) : ddp(model.flat, comm) {}

  void forward() const { loss_sum({}); }
  void backward() const { loss_sum({}).backward(); }

  SmallModel model;
  ReferenceDdp ddp;
  LossSum loss_sum = ddp.wrap(model.loss_sum);
};

using Act = std::function<void(Setup&)>;

class Checks : public Examination {
 public:
  using Examination::Examination;

  void replicas_start_equal() {
    examine("broadcast_parameters()", [&](Communicator& comm) {
      Setup setup(comm);
      setup.model.flat.params().fill_(comm.rank());
      setup.ddp.broadcast_parameters();
      for (const auto& [name, param] : setup.model.flat.named_params()) {
        expect(concat("after broadcast_parameters() '", name, "'"), param, at::full_like(param, 0));
      }
    });
  }

  // In a world of one rank, where the transport takes no memory.
  void broadcasts_in_buffers() {
    examine("broadcast_parameters() with buffers of 1600 bytes", [&](Communicator&) {
      SelfCommunicator alone, agreements;
      RecordingCommunicator comm(alone, agreements);
      std::vector<NamedTensor> leaves;
      for (const std::int64_t numel : {300, 100, 300, 500, 100, 200})
        leaves.push_back({concat("leaf", leaves.size()), SmallModel::leaf(numel)});
      FlatModel model({{"all", leaves}});
      ReferenceDdp ddp(model, comm);
      comm.set_network(Network::kSlow);
      const std::int64_t before = read_memory().live(MemoryCategory::kCommunication);
      reset_memory_peaks();
      ddp.broadcast_parameters(/*buffer_bytes=*/4 * 400);
      const std::int64_t most = read_memory().peak(MemoryCategory::kCommunication) - before;
      std::string numels;
      for (const StartedOperation& started : comm.recording().started)
        numels += concat(numels.empty() ? "" : ", ", started.numel);
      if (numels != "400, 800, 300") {
        fault(
            concat("with buffers of 400 elements, leaves of 300, 100, 300, 500, 100, 200 travel "
                   "in flat copies of ",
                   numels, " elements, not 400, 800, 300"));
      }
      constexpr std::int64_t kTwoCopies = 4 * (400 + 800);
      if (most > kTwoCopies)
        fault(concat("there are ", most, " bytes of copies at once, not ", kTwoCopies, " at most"));
    });
  }

  // Two steps. Rank r's gradients are r + 1 from each microbatch.
  void sends_in_the_last_backward() {
    examine("steps of three microbatches", [&](LockstepCommunicator& comm) {
      Setup setup(comm);
      std::size_t num_before = 0;
      const auto expect_sent = [&](const char* who, std::size_t wanted) {
        expect(concat("the number of all-reduces that ", who, " starts"),
               comm.calls().size() - num_before, wanted);
        num_before = comm.calls().size();
      };
      expect_sent("the constructor", 0);
      setup.model.gradient = comm.rank() + 1;
      for (int step = 0; step < 2; ++step) {
        setup.backward();
        expect_sent("a backward outside of a step", 0);
        setup.model.grads.zero();
        setup.ddp.arm(3);
        for (int i = 0; i < 2; ++i) {
          setup.backward();
          expect_evaluation(setup);
          expect_sent("another than the last of three backwards, or the evaluation after it,", 0);
        }
        const std::int64_t before = read_memory().total_live_bytes;
        reset_memory_peaks();
        setup.backward();
        const std::int64_t scratch = read_memory().peak_bytes - before;
        const std::int64_t bucket =
            setup.model.large.numel() * 4;  // more than any all-reduce takes
        if (scratch >= bucket) {
          fault(concat("the last backward takes ", scratch, " bytes of scratch, not less than the ",
                       bucket, " of a bucket: is there a copy?"));
        }
        expect_sent("the last of three backwards", SmallModel::kNumBuckets);
        setup.ddp.wait();
        expect_sent("wait()", 0);
        expect_sums("", setup, 3);
      }
    });
  }

  void expect_sums(const std::string& prefix, const Setup& setup, int num_microbatches) {
    const double sum = num_microbatches * comm_.size() * (comm_.size() + 1) / 2.0;
    for (const at::Tensor& leaf : {setup.model.first, setup.model.small, setup.model.large})
      expect(prefix + "the sum of the ranks' gradients", leaf.grad(), at::full_like(leaf, sum));
  }

  // As DPO or distillation would: arm() has announced the microbatches of both.
  void counts_all_objectives() {
    const std::string prefix = "two wrapped objectives in a step: ";
    examine("two wrapped objectives in a step", [&](LockstepCommunicator& comm) {
      Setup setup(comm);
      setup.model.gradient = comm.rank() + 1;
      const LossSum other = setup.ddp.wrap(setup.model.loss_sum);
      for (const bool is_other_last : {true, false}) {
        setup.model.grads.zero();
        const std::size_t before = comm.calls().size();
        setup.ddp.arm(3);
        for (const bool is_other : {!is_other_last, !is_other_last, is_other_last})
          is_other ? other({}).backward() : setup.backward();
        expect(prefix + "the number of all-reduces that the last backward starts",
               comm.calls().size() - before, SmallModel::kNumBuckets);
        setup.ddp.wait();
        expect_sums(prefix, setup, 3);
      }
    });
  }

  // Neither knows of the other's step.
  void keeps_models_apart() {
    examine("two models in turn", [&](LockstepCommunicator& comm) {
      Setup one(comm), other(comm);
      one.model.gradient = other.model.gradient = comm.rank() + 1;
      one.ddp.arm(2);
      one.backward();
      other.ddp.arm(2);
      other.backward();
      other.backward();
      other.ddp.wait();
      one.backward();
      one.ddp.wait();
      expect("two models in turn: the number of all-reduces of both", comm.calls().size(),
             2 * SmallModel::kNumBuckets);
      expect_sums("two models in turn: ", one, 2);
      expect_sums("two models in turn: ", other, 2);
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
    expect("the loss of an evaluation", found, setup.model.loss_sum({}));
    if (found.defined() && found.requires_grad())
      fault("an evaluation keeps activations: its loss requires gradients");
  }

  // The last act must throw, and those before it must not.
  void refuses(const std::string& what, std::vector<std::string> words,
               const std::vector<Act>& acts) {
    words.push_back(concat("rank ", comm_.rank()));
    examine(what, [&](Communicator& comm) {
      Setup setup(comm);
      std::for_each(acts.begin(), acts.end() - 1, [&](const Act& act) { act(setup); });
      expect_error(what, words, [&] { acts.back()(setup); });
    });
  }
};

std::vector<std::string> check(Communicator& comm) {
  Checks checks(comm);
  checks.replicas_start_equal();
  checks.broadcasts_in_buffers();
  checks.sends_in_the_last_backward();
  checks.counts_all_objectives();
  checks.keeps_models_apart();
  const auto arm = [](std::int64_t count) -> Act {
    return [count](Setup& setup) { setup.ddp.arm(count); };
  };
  const Act forward = [](Setup& setup) { setup.forward(); };
  const Act backward = [](Setup& setup) { setup.backward(); };
  const Act wait = [](Setup& setup) { setup.ddp.wait(); };
  const Act leave_large_out = [](Setup& setup) { setup.model.uses_large = false; };
  constexpr std::int64_t kBeyond32Bits = (std::int64_t{1} << 32) + 1;
  checks.refuses("arm(0)", {}, {arm(0)});
  checks.refuses("arm(-1)", {"-1"}, {arm(-1)});
  checks.refuses("arm() after arm()", {}, {arm(1), arm(1)});
  checks.refuses("arm() after a whole backward, without wait(),", {}, {arm(1), backward, arm(1)});
  checks.refuses("wait() without arm()", {"wait() without arm()"}, {wait});
  checks.refuses("a second wait()", {"wait() without arm()"}, {arm(1), backward, wait, wait});
  checks.refuses("wait() after one microbatch of two", {}, {arm(2), backward, wait});
  checks.refuses("wait() after one microbatch of 4294967297", {},
                 {arm(kBeyond32Bits), backward, wait});
  checks.refuses("the forward of a second microbatch after arm(1)", {},
                 {arm(1), backward, forward});
  checks.refuses("wait() after a backward without 'large'", {"large"},
                 {arm(1), leave_large_out, backward, wait});
  checks.refuses("wait() after two backwards, the second without 'large',", {"large"},
                 {arm(2), backward, leave_large_out, backward, wait});
  return checks.faults();
}

}  // namespace
}  // namespace step1

std::vector<std::string> judge_linked(Communicator& comm) {
  Judge judge({.trainer = step1::trainer(), .sends_in_place = false}, comm);
  return judge.all_cases_are_right() ? step1::check(comm) : judge.faults();
}

}  // namespace ladder
