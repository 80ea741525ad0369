// For the grader: what a bucketer must not do, and what it must refuse by an error.
#pragma once

#include <torch/csrc/autograd/variable.h>

#include "common/comm/self_communicator.hpp"
#include "common/testing/examination.hpp"
#include "step4_bucketed_ddp/exercise/graded_model.hpp"
#include "step4_bucketed_ddp/exercise/grader.hpp"

namespace ladder::step4 {

class GradeRefusals : public Examination {
 public:
  GradeRefusals(const MakeBucketer& attempt, Communicator& comm)
      : Examination(comm), attempt_(attempt) {}

  void ignores_backwards_that_nobody_armed() {
    examine("a backward before arm()", [this](LockstepCommunicator& comm) {
      GradedModel model(comm.rank());
      const BucketerAttempt bucketer = make(model, comm);
      expect_local_backward("a backward before arm()", model, comm);
    });
    examine("a backward after wait()", [this](LockstepCommunicator& comm) {
      GradedModel model(comm.rank());
      const BucketerAttempt bucketer = make(model, comm);
      bucketer.arm(1);
      model.backward(kForward, 0);
      bucketer.wait();
      model.grads.zero();
      expect_local_backward("a backward after wait(), not armed again,", model, comm);
    });
  }

  // From here on in a world of one rank: nobody waits for what an error keeps from leaving.
  void names_what_had_too_few_gradients() {
    const Order incomplete = {0, 1, 3, 4, 5, 6, 8, 9};  // without block0.weight
    examine_alone("a parameter without a gradient",
                  [&](GradedModel& model, const BucketerAttempt& bucketer) {
                    bucketer.arm(1);
                    model.backward(incomplete, 0);
                    expect_error("wait() after a backward without 'block0.weight'",
                                 {"block0.weight", "rank 0"}, bucketer.wait);
                  });
    examine_alone("a parameter with one gradient of two",
                  [&](GradedModel& model, const BucketerAttempt& bucketer) {
                    bucketer.arm(2);
                    model.backward(kForward, 0);
                    model.backward(incomplete, 1);
                    expect_error("wait() after two backwards, the second without 'block0.weight',",
                                 {"block0.weight", "rank 0"}, bucketer.wait);
                  });
  }

  void names_what_had_too_many_gradients() {
    examine_alone("a second backward after arm(1)",
                  [&](GradedModel& model, const BucketerAttempt& bucketer) {
                    bucketer.arm(1);
                    model.backward(kForward, 0);
                    expect_error("a second backward after arm(1), which begins with 'head.bias',",
                                 {"head.bias", "rank 0"}, [&] { model.backward(kForward, 0); });
                  });
  }

  void refuses_calls_out_of_turn() {
    examine_alone("wait() without arm()",
                  [&](GradedModel& /*model*/, const BucketerAttempt& bucketer) {
                    expect_error("wait() without arm()", {"rank 0"}, bucketer.wait);
                  });
    examine_alone("arm(0)", [&](GradedModel& /*model*/, const BucketerAttempt& bucketer) {
      expect_error("arm(0), for no backward,", {"rank 0"}, [&] { bucketer.arm(0); });
    });
    examine_alone("arm() after arm()",
                  [&](GradedModel& /*model*/, const BucketerAttempt& bucketer) {
                    bucketer.arm(1);
                    expect_error("arm() after arm()", {"rank 0"}, [&] { bucketer.arm(1); });
                  });
  }

  void removes_its_hooks() {
    examine_alone("the destructor", [&](GradedModel& model, const BucketerAttempt& /*bucketer*/) {
      SelfCommunicator alone;
      { const BucketerAttempt short_lived = make(model, alone); }
      for (const std::int64_t t : kForward) {
        if (torch::autograd::impl::post_acc_grad_hooks(model.tensor(t)) == nullptr) continue;
        return fault(concat("'", model.name(t), "' keeps its hook when the bucketer is gone: the ",
                            "next backward would call into freed memory"));
      }
    });
  }

 private:
  template <class Part>
  void examine_alone(const std::string& what, Part part) {
    examine(what, [&](Communicator& /*comm*/) {
      SelfCommunicator alone;
      GradedModel model(alone.rank());
      part(model, make(model, alone));
    });
  }

  BucketerAttempt make(GradedModel& model, Communicator& comm) const {
    return attempt_(model.grads, model.plan(), comm, start_all_reduce);
  }

  void expect_local_backward(const std::string& what, GradedModel& model,
                             const LockstepCommunicator& comm) {
    const std::size_t before = comm.calls().size();
    model.backward(kForward, 0);
    expect("the number of all-reduces that " + what + " starts", comm.calls().size() - before,
           std::size_t{0});
    expect("the flat gradient after " + what, model.grads.flat(), model.own(1));
  }

  const MakeBucketer& attempt_;
};

}  // namespace ladder::step4
