// The grader of the exercise: it accepts the reference, and it rejects answers that look right and
// are not, each for its own reason.
#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/core/check.hpp"
#include "common/testing/forwarding_communicator.hpp"
#include "common/testing/mpi_world.hpp"
#include "step1_ddp_reference/exercise/grader.hpp"
#include "step1_ddp_reference/reference_ddp.hpp"

namespace ladder {
namespace {

using step1::Ddp;
using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// The one that this build links: the reference, or with -DLADDER_EXERCISE=step1_ddp_reference the
// learner's.
Ddp linked_ddp(FlatModel& model, Communicator& comm) {
  const auto ddp = std::make_shared<ReferenceDdp>(model, comm);
  return {[ddp] { ddp->broadcast_parameters(); },
          [ddp](LossSum loss_sum) { return ddp->wrap(std::move(loss_sum)); },
          [ddp](std::int64_t num_microbatches) { ddp->arm(num_microbatches); },
          [ddp] { ddp->wait(); }};
}

TEST(Exercise, ReferenceDdpIsRight) {
  EXPECT_THAT(step1::grade(linked_ddp, mpi_world().comm()), IsEmpty());
}

// Wrong answers.

Ddp does_not_broadcast(FlatModel& model, Communicator& comm) {
  Ddp ddp = linked_ddp(model, comm);
  ddp.broadcast_parameters = [] {};
  return ddp;
}

Ddp broadcasts_the_trainable_only(FlatModel& model, Communicator& comm) {
  Ddp ddp = linked_ddp(model, comm);
  ddp.broadcast_parameters = [&] {
    for (const auto& [name, leaf] : model.leaves()) {
      if (leaf.requires_grad()) comm.broadcast(leaf.detach(), 0)->wait();
    }
  };
  return ddp;
}

Ddp takes_the_mean(FlatModel& model, Communicator& comm) {
  Ddp ddp = linked_ddp(model, comm);
  ddp.wait = [&, wait = ddp.wait] {
    wait();
    model.grads().div_(comm.size());
  };
  return ddp;
}

Ddp reduces_every_microbatch(FlatModel& model, Communicator& comm) {
  Ddp ddp = linked_ddp(model, comm);
  const auto is_running = std::make_shared<bool>(false);
  ddp.wrap = [wrap = ddp.wrap, arm = ddp.arm, wait = ddp.wait, is_running](LossSum inner) {
    return [=, loss_sum = wrap(std::move(inner))](const Microbatch& microbatch) {
      if (at::GradMode::is_enabled()) {
        if (std::exchange(*is_running, true)) wait();
        arm(1);
      }
      return loss_sum(microbatch);
    };
  };
  ddp.arm = [](std::int64_t /*num_microbatches*/) {};
  ddp.wait = [wait = ddp.wait, is_running] {
    *is_running = false;
    wait();
  };
  return ddp;
}

Ddp reduces_nothing(FlatModel& model, Communicator& comm) {
  Ddp ddp = linked_ddp(model, comm);
  ddp.wrap = [](LossSum loss_sum) { return loss_sum; };
  ddp.arm = [](std::int64_t /*num_microbatches*/) {};
  ddp.wait = [] {};
  return ddp;
}

Ddp counts_evaluations(FlatModel& model, Communicator& comm) {
  Ddp ddp = linked_ddp(model, comm);
  ddp.wrap = [wrap = ddp.wrap](LossSum inner) {
    return [loss_sum = wrap(std::move(inner))](const Microbatch& microbatch) {
      const at::AutoGradMode with_gradients(true);
      return loss_sum(microbatch);
    };
  };
  return ddp;
}

Ddp puts_other_gradients_in_place(FlatModel& model, Communicator& comm) {
  Ddp ddp = linked_ddp(model, comm);
  ddp.wait = [&, wait = ddp.wait] {
    wait();
    for (const auto& [name, leaf] : model.leaves()) {
      if (leaf.requires_grad()) leaf.mutable_grad() = leaf.grad().clone();
    }
  };
  return ddp;
}

Ddp says_nothing_of_a_missing_gradient(FlatModel& model, Communicator& comm) {
  Ddp ddp = linked_ddp(model, comm);
  ddp.wait = [wait = ddp.wait] {
    try {
      wait();
    } catch (const CheckError&) {
    }
  };
  return ddp;
}

// The others over a Communicator with one fault of its own, which lives as long as the answer.
template <class Faulty>
Ddp over(FlatModel& model, Communicator& comm) {
  const auto faulty = std::make_shared<Faulty>(comm);
  Ddp ddp = linked_ddp(model, *faulty);
  ddp.broadcast_parameters = [faulty, broadcast = ddp.broadcast_parameters] { broadcast(); };
  return ddp;
}

class NoWork final : public Work {
 public:
  bool test() override { return true; }
  void wait() override {}
};

class ReducesTheFirstBucketOnly final : public ForwardingCommunicator {
 public:
  using ForwardingCommunicator::ForwardingCommunicator;
  WorkPtr all_reduce(at::Tensor inout) override {
    if (num_calls_++ % 2 == 0) return ForwardingCommunicator::all_reduce(std::move(inout));
    return std::make_unique<NoWork>();
  }

 private:
  int num_calls_ = 0;
};

// Rank N-1's value first, rank 0's last: the right sum in another order.
class FoldsBackwards final : public ForwardingCommunicator {
 public:
  using ForwardingCommunicator::ForwardingCommunicator;
  WorkPtr all_reduce(at::Tensor inout) override {
    const at::Tensor all = at::empty({size() * inout.numel()});
    all_gather(inout, all)->wait();
    const auto of_rank = [&](int r) { return all.narrow(0, r * inout.numel(), inout.numel()); };
    inout.copy_(of_rank(size() - 1));
    for (int r = size() - 2; r >= 0; --r) inout.add_(of_rank(r));
    return std::make_unique<NoWork>();
  }
};

class OnlyRankZeroReduces final : public ForwardingCommunicator {
 public:
  using ForwardingCommunicator::ForwardingCommunicator;
  WorkPtr all_reduce(at::Tensor inout) override {
    if (rank() == 0) return ForwardingCommunicator::all_reduce(std::move(inout));
    return std::make_unique<NoWork>();
  }
};

TEST(Exercise, GraderRejectsWrongAnswers) {
  Communicator& comm = mpi_world().comm();
  if (!step1::grade(linked_ddp, comm).empty()) {
    ADD_FAILURE() << "the wrong answers are made from the right one: see the test above first";
    return;
  }
  struct WrongAnswer {
    step1::MakeDdp make;
    const char* reason;  // part of a line that must be among the faults
    int from_ranks;      // on fewer it is right
  };
  const std::vector<WrongAnswer> wrong = {
      {does_not_broadcast, "after broadcast_parameters() 'tied' is 2, not 1", 2},
      {broadcasts_the_trainable_only, "after broadcast_parameters() 'frozen' is 2, not 1", 2},
      {takes_the_mean, "the gradient of 'large' in step 0 with 1 microbatches is", 2},
      {reduces_every_microbatch, "all_reduces after microbatch 0 of 3 is 2, not 0", 1},
      {reduces_nothing, "all_reduces in a step of 1 microbatches is 0, not 2", 1},
      {counts_evaluations, "all_reduces after microbatch 1 of 3 is 2, not 0", 1},
      {puts_other_gradients_in_place, "is no longer the view of the flat buffer", 1},
      {says_nothing_of_a_missing_gradient, "wait() says nothing, a CheckError is wanted", 1},
      {over<ReducesTheFirstBucketOnly>, "the gradient of 'tied' in step 0 with 1", 2},
      {over<FoldsBackwards>, "the gradient of 'large' in step 0 with 1 microbatches is", 3},
      {over<OnlyRankZeroReduces>, "rank 0: all_reduce of 300000 elements; rank 1: nothing more", 2},
  };
  for (std::size_t i = 0; i < wrong.size(); ++i) {
    if (comm.size() < wrong[i].from_ranks) continue;
    const std::vector<std::string> faults = step1::grade(wrong[i].make, comm);
    EXPECT_THAT(faults, Contains(HasSubstr(wrong[i].reason))) << "wrong answer " << i;
  }
}

}  // namespace
}  // namespace ladder
