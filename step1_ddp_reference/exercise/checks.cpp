// Judges a ReferenceDdp: the trainer shows what is summed, held and sent; these checks show when
// it is sent, what an evaluation within a step does, and what must be refused.
#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/full_like.h>
#include <ATen/ops/ones.h>

#include "common/core/memory_ledger.hpp"
#include "common/testing/judge_main.hpp"
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

  // Two steps. Rank r's gradients are r + 1 from each microbatch.
  void sends_in_the_last_backward() {
    examine("steps of three microbatches", [&](LockstepCommunicator& comm) {
      Setup setup(comm);
      std::size_t wanted = 0;
      const auto expect_sent = [&](const char* when) {
        expect(concat("the number of calls ", when), comm.calls().size(), wanted);
      };
      expect_sent("of the constructor");
      setup.model.gradient = comm.rank() + 1;
      for (int step = 0; step < 2; ++step) {
        setup.backward();
        expect_sent("after a backward outside of a step");
        setup.model.grads.zero();
        setup.ddp.arm(3);
        for (int i = 0; i < 2; ++i) {
          setup.backward();
          expect_evaluation(setup);
          expect_sent("before the last of three backwards, with an evaluation after each,");
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
        wanted += SmallModel::kNumBuckets;
        expect_sent("when the last of three backwards returns");
        setup.ddp.wait();
        expect_sent("when wait() returns");
        const double sum = 3.0 * comm.size() * (comm.size() + 1) / 2;
        for (const at::Tensor& leaf : {setup.model.first, setup.model.small, setup.model.large}) {
          expect("the sum of the ranks' gradients", leaf.grad(), at::full_like(leaf, sum));
        }
      }
    });
  }

  void expect_evaluation(const Setup& setup) {
    const at::NoGradGuard no_grad;
    const at::Tensor found = setup.loss_sum({});
    expect("the loss of an evaluation", found, setup.model.loss_sum({}));
    if (found.defined() && found.requires_grad())
      fault("an evaluation keeps activations: its loss requires gradients");
  }

  void refuses(const std::string& what, const std::vector<std::string>& words,
               const std::function<void(Setup&)>& prepare,
               const std::function<void(Setup&)>& call) {
    examine(what, [&](Communicator& comm) {
      Setup setup(comm);
      prepare(setup);
      std::vector<std::string> all = words;
      all.push_back(concat("rank ", comm.rank()));
      expect_error(what, all, [&] { call(setup); });
    });
  }
};

std::vector<std::string> check(Communicator& comm) {
  Checks checks(comm);
  checks.replicas_start_equal();
  checks.sends_in_the_last_backward();
  const auto nothing = [](Setup&) {};
  const auto wait = [](Setup& setup) { setup.ddp.wait(); };
  const auto arm = [](std::int64_t count) {
    return [count](Setup& setup) { setup.ddp.arm(count); };
  };
  const auto step_of_1 = [](Setup& setup) {
    setup.ddp.arm(1);
    setup.backward();
  };
  checks.refuses("arm(0)", {}, nothing, arm(0));
  checks.refuses("arm(-1)", {"-1"}, nothing, arm(-1));
  checks.refuses("arm() after arm()", {}, arm(1), arm(1));
  checks.refuses("arm() after a whole backward, without wait(),", {}, step_of_1, arm(1));
  checks.refuses("wait() without arm()", {"wait() without arm()"}, nothing, wait);
  checks.refuses(
      "a second wait()", {"wait() without arm()"},
      [&](Setup& setup) {
        step_of_1(setup);
        setup.ddp.wait();
      },
      wait);
  checks.refuses(
      "wait() after one microbatch of two", {},
      [](Setup& setup) {
        setup.ddp.arm(2);
        setup.backward();
      },
      wait);
  checks.refuses("the forward of a second microbatch after arm(1)", {}, step_of_1,
                 [](Setup& setup) { setup.forward(); });
  checks.refuses(
      "wait() after a backward without 'large'", {"large"},
      [&](Setup& setup) {
        setup.model.uses_large = false;
        step_of_1(setup);
      },
      wait);
  checks.refuses(
      "wait() after two backwards, the second without 'large',", {"large"},
      [](Setup& setup) {
        setup.ddp.arm(2);
        setup.backward();
        setup.model.uses_large = false;
        setup.backward();
      },
      wait);
  return checks.faults();
}

}  // namespace
}  // namespace step1

std::vector<std::string> judge_linked(Communicator& comm) {
  Judge judge({.trainer = step1::trainer(), .sends_in_place = false}, comm);
  return judge.all_cases_are_right() ? step1::check(comm) : judge.faults();
}

}  // namespace ladder
