// For the grader: what a sharder must not do, and what it must refuse by an error.
#pragma once

#include <ATen/ops/ones_like.h>
#include <torch/csrc/autograd/variable.h>

#include <string>

#include "common/comm/self_communicator.hpp"
#include "common/testing/examination.hpp"
#include "step6_zero2/exercise/graded_model.hpp"
#include "step6_zero2/exercise/grader.hpp"

namespace ladder::step6 {

class GradeRefusals : public Examination {
 public:
  GradeRefusals(const MakeSharder& attempt, Communicator& comm)
      : Examination(comm), attempt_(attempt) {}

  void ignores_backwards_that_nobody_armed() {
    examine("a backward before arm()", [this](LockstepCommunicator& comm) {
      const GradedModel model(comm.rank(), comm.size());
      const SharderAttempt sharder = make(model, comm);
      expect_local_backward("a backward before arm()", model, comm);
    });
    examine("a backward after wait()", [this](LockstepCommunicator& comm) {
      const GradedModel model(comm.rank(), comm.size());
      const SharderAttempt sharder = make(model, comm);
      sharder.arm(1);
      model.backward(kForward, 0);
      sharder.wait();
      expect_local_backward("a backward after wait(), not armed again,", model, comm);
    });
  }

  // From here on in a world of one rank: nobody waits for what an error keeps from leaving.
  void names_what_had_too_few_gradients() {
    examine_alone("a parameter without a gradient",
                  [&](const GradedModel& model, const SharderAttempt& sharder) {
                    sharder.arm(1);
                    model.backward(kForward, 0, "unit2.long");
                    expect_error("wait() after a backward without 'unit2.long'",
                                 {"unit2.long", "rank 0"}, sharder.wait);
                  });
    examine_alone("a parameter with one gradient of two",
                  [&](const GradedModel& model, const SharderAttempt& sharder) {
                    sharder.arm(2);
                    model.backward(kForward, 0, "unit2.long");
                    expect_error(
                        "the second of two backwards, the first without 'unit2.long', "
                        "and wait()",
                        {"unit2.long", "rank 0"}, [&] {
                          model.backward(kForward, 1);
                          sharder.wait();
                        });
                  });
  }

  void names_what_had_too_many_gradients() {
    examine_alone("a second backward after arm(1)",
                  [&](const GradedModel& model, const SharderAttempt& sharder) {
                    sharder.arm(1);
                    model.backward(kForward, 0);
                    expect_error("a second backward after arm(1), which begins with 'unit4.long',",
                                 {"unit4.long", "rank 0"}, [&] { model.backward(kForward, 1); });
                  });
  }

  void refuses_calls_out_of_turn() {
    examine_alone("wait() without arm()",
                  [&](const GradedModel& /*model*/, const SharderAttempt& sharder) {
                    expect_error("wait() without arm()", {"rank 0"}, sharder.wait);
                  });
    examine_alone("arm(0)", [&](const GradedModel& /*model*/, const SharderAttempt& sharder) {
      expect_error("arm(0), for no backward,", {"rank 0"}, [&] { sharder.arm(0); });
    });
    examine_alone("arm() after arm()",
                  [&](const GradedModel& /*model*/, const SharderAttempt& sharder) {
                    sharder.arm(1);
                    expect_error("arm() after arm()", {"rank 0"}, [&] { sharder.arm(1); });
                  });
  }

  void removes_its_hooks() {
    examine_alone("the destructor", [&](const GradedModel& model, const SharderAttempt&) {
      SelfCommunicator alone;
      { const SharderAttempt short_lived = make(model, alone); }
      for (std::size_t t = 0; t < model.plan.layout.tensors.size(); ++t) {
        if (!model.place(t).is_trainable) continue;
        if (torch::autograd::impl::post_acc_grad_hooks(model.leaf(t)) == nullptr) continue;
        return fault(concat("'", model.place(t).name, "' keeps its hook when the sharder is gone: ",
                            "the next backward would call into freed memory"));
      }
    });
  }

 private:
  template <class Part>
  void examine_alone(const std::string& what, Part part) {
    examine(what, [&](Communicator& /*comm*/) {
      SelfCommunicator alone;
      const GradedModel model(alone.rank(), alone.size());
      part(model, make(model, alone));
    });
  }

  SharderAttempt make(const GradedModel& model, Communicator& comm) const {
    return attempt_(model.plan, model.flat.leaves(), comm);
  }

  // Autograd keeps what it has computed, and nothing is sent.
  void expect_local_backward(const std::string& what, const GradedModel& model,
                             const LockstepCommunicator& comm) {
    const std::size_t before = comm.calls().size();
    model.backward(kForward, 0);
    expect("the number of collectives that " + what + " starts", comm.calls().size() - before,
           std::size_t{0});
    for (std::size_t t = 0; t < model.plan.layout.tensors.size(); ++t) {
      if (!model.place(t).is_trainable) continue;
      if (!model.leaf(t).grad().defined())
        return fault("a .grad is gone: leave it to autograd after " + what);
      expect(concat("the .grad of '", model.place(t).name, "' after ", what), model.leaf(t).grad(),
             at::ones_like(model.leaf(t)) * model.share(model.rank, 0, t));
    }
  }

  const MakeSharder& attempt_;
};

}  // namespace ladder::step6
