// Answers that look right and are not. The grader must reject each of them, for the reason given.
// Each is the right one, that is, the one that this build links, with one mistake.
#pragma once

#include <ATen/core/grad_mode.h>
#include <ATen/ops/cat.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "common/core/check.hpp"
#include "common/core/memory_ledger.hpp"
#include "common/testing/wrong_answer.hpp"
#include "step1_ddp_reference/exercise/faulty_communicators.hpp"
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
    for (const auto& [name, leaf] : model.leaves()) {
      if (leaf.grad().defined()) leaf.grad().div_(comm.size());
    }
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

inline Ddp reduces_outside_of_a_step(FlatModel& model, Communicator& comm) {
  Ddp ddp = linked_ddp(model, comm);
  const auto is_armed = std::make_shared<bool>(false);
  ddp.wrap = [wrap = ddp.wrap, arm = ddp.arm, is_armed](LossSum inner) {
    return [=, loss_sum = wrap(std::move(inner))](const Microbatch& microbatch) {
      if (at::GradMode::is_enabled() && !std::exchange(*is_armed, true)) arm(1);
      return loss_sum(microbatch);
    };
  };
  ddp.arm = [arm = ddp.arm, is_armed](std::int64_t num_microbatches) {
    arm(num_microbatches);
    *is_armed = true;
  };
  ddp.wait = [wait = ddp.wait, is_armed] {
    *is_armed = false;
    wait();
  };
  return ddp;
}

inline Ddp lets_one_microbatch_more_pass(FlatModel& model, Communicator& comm) {
  Ddp ddp = linked_ddp(model, comm);
  const auto num_left = std::make_shared<std::int64_t>(-1);
  ddp.arm = [arm = ddp.arm, num_left](std::int64_t num_microbatches) {
    arm(num_microbatches);
    *num_left = num_microbatches;
  };
  ddp.wrap = [wrap = ddp.wrap, num_left](LossSum inner) {
    return [=, loss_sum = wrap(inner)](const Microbatch& microbatch) {
      if (at::GradMode::is_enabled() && (*num_left)-- == 0) return inner(microbatch);
      return loss_sum(microbatch);
    };
  };
  return ddp;
}

inline Ddp arms_a_step_of_nothing(FlatModel& model, Communicator& comm) {
  Ddp ddp = linked_ddp(model, comm);
  ddp.arm = [arm = ddp.arm](std::int64_t num_microbatches) {
    if (num_microbatches > 0) arm(num_microbatches);
  };
  return ddp;
}

inline Ddp arms_twice(FlatModel& model, Communicator& comm) {
  Ddp ddp = linked_ddp(model, comm);
  const auto is_armed = std::make_shared<bool>(false);
  ddp.arm = [arm = ddp.arm, is_armed](std::int64_t num_microbatches) {
    if (!*is_armed) arm(num_microbatches);
    *is_armed = true;
  };
  ddp.wait = [wait = ddp.wait, is_armed] {
    *is_armed = false;
    wait();
  };
  return ddp;
}

// What `handle` makes of what wait() throws.
template <class Handle>
Ddp on_error(FlatModel& model, Communicator& comm, Handle handle) {
  Ddp ddp = linked_ddp(model, comm);
  ddp.wait = [wait = ddp.wait, handle] {
    try {
      wait();
    } catch (const CheckError& error) {
      handle(std::string(error.what()));
    }
  };
  return ddp;
}

inline bool is_of_missing_gradient(const std::string& error) {
  return error.find("no gradient") != std::string::npos;
}

inline Ddp says_nothing_of_a_missing_gradient(FlatModel& model, Communicator& comm) {
  return on_error(model, comm, [](const std::string& error) {
    if (!is_of_missing_gradient(error)) throw CheckError(error);
  });
}

inline Ddp names_no_parameter(FlatModel& model, Communicator& comm) {
  return on_error(model, comm, [](const std::string& error) {
    throw CheckError(is_of_missing_gradient(error) ? error.substr(0, error.find('\'')) : error);
  });
}

inline Ddp names_no_rank(FlatModel& model, Communicator& comm) {
  return on_error(model, comm, [](const std::string& error) {
    throw CheckError(error.substr(error.find(':')));
  });
}

inline Ddp looks_for_a_gradient_of_zeros(FlatModel& model, Communicator& comm) {
  return on_error(model, comm, [&model](const std::string& error) {
    bool is_missing = !is_of_missing_gradient(error);
    for (const auto& [name, leaf] : model.leaves())
      is_missing = is_missing || (leaf.requires_grad() && !leaf.grad().any().item<bool>());
    if (is_missing) throw CheckError(error);
  });
}

inline Ddp says_nothing_of_a_missing_microbatch(FlatModel& model, Communicator& comm) {
  return on_error(model, comm, [](const std::string& error) {
    if (is_of_missing_gradient(error)) throw CheckError(error);
  });
}

inline Ddp broadcasts_when_made(FlatModel& model, Communicator& comm) {
  Ddp ddp = linked_ddp(model, comm);
  ddp.broadcast_parameters();
  return ddp;
}

inline Ddp holds_another_copy(FlatModel& model, Communicator& comm) {
  const MemoryScope scope(MemoryCategory::kCommunication);
  Ddp ddp = linked_ddp(model, comm);
  ddp.wait = [wait = ddp.wait, copy = model.params().clone()] { wait(); };
  return ddp;
}

inline Ddp leaves_its_copy_behind(FlatModel& model, Communicator& comm) {
  const MemoryScope scope(MemoryCategory::kCommunication);
  for (const auto& [name, leaf] : model.leaves()) {
    if (leaf.requires_grad())
      leaf.register_hook([copy = leaf.detach().clone()](const at::Tensor&) {});
  }
  return linked_ddp(model, comm);
}

inline Ddp accepts_a_frozen_model(FlatModel& model, Communicator& comm) {
  for (const auto& [name, leaf] : model.leaves()) {
    if (leaf.requires_grad()) return linked_ddp(model, comm);
  }
  return {};
}

// The answer over a Communicator with one fault of its own, which lives as long as the answer.
template <class Faulty>
Ddp linked_over(FlatModel& model, const std::shared_ptr<Faulty>& faulty) {
  Ddp ddp = linked_ddp(model, *faulty);
  ddp.broadcast_parameters = [faulty, broadcast = ddp.broadcast_parameters] { broadcast(); };
  return ddp;
}

template <class Faulty>
Ddp over(FlatModel& model, Communicator& comm) {
  return linked_over(model, std::make_shared<Faulty>(comm));
}

// The Reducer gets back what it gave; wait() puts the sums in its place.
inline Ddp reduces_in_wait(FlatModel& model, Communicator& comm) {
  const auto keeper = std::make_shared<KeepsBuckets>(comm);
  Ddp ddp = linked_over(model, keeper);
  ddp.wait = [&model, &comm, keeper, wait = ddp.wait] {
    wait();
    for (const at::Tensor& bucket : keeper->buckets) comm.all_reduce(bucket)->wait();
    const at::Tensor sums = at::cat(std::exchange(keeper->buckets, {}));
    std::int64_t end = sums.numel();  // buckets hold the trainable tensors in reverse
    for (const auto& [name, leaf] : model.leaves()) {
      if (!leaf.requires_grad()) continue;
      end -= leaf.numel();
      leaf.mutable_grad().copy_(sums.narrow(0, end, leaf.numel()));
    }
  };
  return ddp;
}

inline std::vector<WrongAnswer<MakeDdp>> wrong_answers() {
  return {
      {"does not broadcast", does_not_broadcast, 2,
       "rank 1: after broadcast_parameters() 'tied' is 2, not 1", "after broadcast_parameters()"},
      {"broadcasts the trainable only", broadcasts_the_trainable_only, 2,
       "rank 1: after broadcast_parameters() 'frozen' is 2, not 1", "'frozen'"},
      {"takes the mean", takes_the_mean, 2,
       "the gradient of 'large' in step 0 with 1 microbatches is", "the gradient of"},
      {"reduces every microbatch", reduces_every_microbatch, 1,
       "what has been sent after microbatch 0 of 3 is all_reduce of 300000 elements, all_reduce of "
       "22 elements, not nothing"},
      {"reduces nothing", reduces_nothing, 1,
       "in steps of 1 microbatches, what has been sent when the last backward returns is nothing, "
       "not all_reduce of 300000 elements, all_reduce of 22 elements"},
      {"reduces in wait()", reduces_in_wait, 1,
       "what has been sent when the last backward returns is nothing, not all_reduce",
       "when the last backward returns"},
      {"reduces outside of a step", reduces_outside_of_a_step, 1,
       "what a backward outside of a step sends is all_reduce of 300000", "outside of a step"},
      {"halves buckets", over<HalvesBuckets>, 1,
       "when the last backward returns is all_reduce of 150000 elements, all_reduce of 150000",
       "what has been sent when"},
      {"counts evaluations", counts_evaluations, 1,
       "what has been sent after microbatch 1 of 3 is all_reduce of 300000"},
      {"puts other gradients in place", puts_other_gradients_in_place, 1,
       "is no longer the view of the flat buffer"},
      {"says nothing of a missing gradient", says_nothing_of_a_missing_gradient, 1,
       "'large' got no gradient: wait() says nothing; expected a CheckError",
       "'large' got no gradient"},
      {"looks for a gradient of zeros", looks_for_a_gradient_of_zeros, 1,
       "'large' got no gradient in the last of two microbatches: wait() says nothing",
       "in the last of two microbatches"},
      {"names no parameter", names_no_parameter, 1, "without 'large'", "without 'large'"},
      {"names no rank", names_no_rank, 1, "without 'rank 0'", "without 'rank "},
      {"says nothing of a missing microbatch", says_nothing_of_a_missing_microbatch, 1,
       "only 1 microbatch of 2 ran: wait() says nothing", "only 1 microbatch of 2 ran"},
      {"lets one microbatch more pass", lets_one_microbatch_more_pass, 1,
       "a second microbatch after arm(1): its forward says nothing", "a second microbatch"},
      {"arms a step of nothing", arms_a_step_of_nothing, 1, "arm(0) says nothing", "arm("},
      {"arms twice", arms_twice, 1, "arm() before the wait() of the previous step says nothing",
       "arm() before the wait()"},
      {"broadcasts when made", broadcasts_when_made, 1,
       "what constructor and destructor send is broadcast of", "constructor"},
      {"holds another copy", holds_another_copy, 1, "the number of bytes that the buckets take is",
       "the number of bytes"},
      {"leaves its copy behind", leaves_its_copy_behind, 1,
       "the number of bytes that the destructor leaves behind is 1200088, not 0",
       "the number of bytes"},
      {"accepts a frozen model", accepts_a_frozen_model, 1,
       "a model without a trainable parameter: the constructor says nothing",
       "without a trainable parameter"},
      {"reduces the first bucket only", over<ReducesTheFirstBucketOnly>, 2,
       "what has been sent when the last backward returns is all_reduce of 300000 elements, not"},
      {"folds backwards", over<FoldsBackwards>, 3,
       "the gradient of 'large' in step 0 with 1 microbatches is"},
      {"only rank 0 reduces", over<OnlyRankZeroReduces>, 2,
       "rank 0: all_reduce of 300000 elements; rank 1: nothing more"},
  };
}

}  // namespace ladder::step1
