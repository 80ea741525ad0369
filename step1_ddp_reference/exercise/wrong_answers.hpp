// Answers that look right and are not. The grader must reject each of them, for the reason given.
// Each is the right one, that is, the one that this build links, with one mistake.
#pragma once

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "common/core/check.hpp"
#include "common/testing/forwarding_communicator.hpp"
#include "common/testing/wrong_answer.hpp"
#include "step1_ddp_reference/exercise/linked_ddp.hpp"

namespace ladder::step1 {

inline Ddp does_not_broadcast(FlatModel& model, Communicator& comm) {
  Ddp ddp = linked_ddp(model, comm);
  ddp.broadcast_parameters = [] {};
  return ddp;
}

inline Ddp broadcasts_the_trainable_only(FlatModel& model, Communicator& comm) {
  Ddp ddp = linked_ddp(model, comm);
  ddp.broadcast_parameters = [&] {
    for (const auto& [name, leaf] : model.leaves()) {
      if (leaf.requires_grad()) comm.broadcast(leaf.detach(), 0)->wait();
    }
  };
  return ddp;
}

inline Ddp takes_the_mean(FlatModel& model, Communicator& comm) {
  Ddp ddp = linked_ddp(model, comm);
  ddp.wait = [&, wait = ddp.wait] {
    wait();
    model.grads().div_(comm.size());
  };
  return ddp;
}

inline Ddp reduces_every_microbatch(FlatModel& model, Communicator& comm) {
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

inline Ddp reduces_nothing(FlatModel& model, Communicator& comm) {
  Ddp ddp = linked_ddp(model, comm);
  ddp.wrap = [](LossSum loss_sum) { return loss_sum; };
  ddp.arm = [](std::int64_t /*num_microbatches*/) {};
  ddp.wait = [] {};
  return ddp;
}

inline Ddp counts_evaluations(FlatModel& model, Communicator& comm) {
  Ddp ddp = linked_ddp(model, comm);
  ddp.wrap = [wrap = ddp.wrap](LossSum inner) {
    return [loss_sum = wrap(std::move(inner))](const Microbatch& microbatch) {
      const at::AutoGradMode with_gradients(true);
      return loss_sum(microbatch);
    };
  };
  return ddp;
}

inline Ddp puts_other_gradients_in_place(FlatModel& model, Communicator& comm) {
  Ddp ddp = linked_ddp(model, comm);
  ddp.wait = [&, wait = ddp.wait] {
    wait();
    for (const auto& [name, leaf] : model.leaves()) {
      if (leaf.requires_grad()) leaf.mutable_grad() = leaf.grad().clone();
    }
  };
  return ddp;
}

inline Ddp says_nothing_of_a_missing_gradient(FlatModel& model, Communicator& comm) {
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

inline std::vector<WrongAnswer<MakeDdp>> wrong_answers() {
  return {
      {"does not broadcast", does_not_broadcast, 2,
       "rank 1: after broadcast_parameters() 'tied' is 2, not 1"},
      {"broadcasts the trainable only", broadcasts_the_trainable_only, 2,
       "rank 1: after broadcast_parameters() 'frozen' is 2, not 1"},
      {"takes the mean", takes_the_mean, 2,
       "the gradient of 'large' in step 0 with 1 microbatches is"},
      {"reduces every microbatch", reduces_every_microbatch, 1,
       "all_reduces after microbatch 0 of 3 is 2, not 0"},
      {"reduces nothing", reduces_nothing, 1,
       "all_reduces in a step of 1 microbatches is 0, not 2"},
      {"counts evaluations", counts_evaluations, 1,
       "all_reduces after microbatch 1 of 3 is 2, not 0"},
      {"puts other gradients in place", puts_other_gradients_in_place, 1,
       "is no longer the view of the flat buffer"},
      {"says nothing of a missing gradient", says_nothing_of_a_missing_gradient, 1,
       "wait() says nothing, a CheckError is wanted"},
      {"reduces the first bucket only", over<ReducesTheFirstBucketOnly>, 2,
       "the gradient of 'tied' in step 0 with 1"},
      {"folds backwards", over<FoldsBackwards>, 3,
       "the gradient of 'large' in step 0 with 1 microbatches is"},
      {"only rank 0 reduces", over<OnlyRankZeroReduces>, 2,
       "rank 0: all_reduce of 300000 elements; rank 1: nothing more"},
  };
}

}  // namespace ladder::step1
