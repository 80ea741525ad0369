// Answers that look right and are not. The grader must reject each of them, for the reason given.
#pragma once

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>

#include <string>
#include <utility>
#include <vector>

#include "common/core/check.hpp"
#include "common/testing/wrong_answer.hpp"
#include "step3_naive_dp/exercise/grader.hpp"

namespace ladder::step3 {

// Right, and independent of the answer that this build links: what the wrong halves go with.
inline void right_broadcast(FlatModel& model, Communicator& comm, int root) {
  comm.broadcast(model.params(), root)->wait();
}

inline std::vector<at::Tensor> trainable_gradients(const FlatGradients& grads) {
  std::vector<at::Tensor> gradients;
  for (const auto& [name, parameter] : grads.leaves()) {
    if (parameter.requires_grad()) gradients.push_back(parameter.grad());
  }
  return gradients;
}

inline void right_all_reduce(FlatGradients& grads, Communicator& comm) {
  for (const at::Tensor& gradient : trainable_gradients(grads)) comm.all_reduce(gradient)->wait();
}

inline void no_broadcast(FlatModel& /*model*/, Communicator& /*comm*/, int /*root*/) {}

inline void broadcasts_from_rank_0(FlatModel& model, Communicator& comm, int /*root*/) {
  comm.broadcast(model.params(), 0)->wait();
}

inline void broadcasts_what_is_trained(FlatModel& model, Communicator& comm, int root) {
  for (const auto& [name, parameter] : model.leaves()) {
    if (parameter.requires_grad()) comm.broadcast(parameter.detach(), root)->wait();
  }
}

inline void broadcasts_on_the_root_alone(FlatModel& model, Communicator& comm, int root) {
  if (comm.rank() == root) comm.broadcast(model.params(), root)->wait();
}

inline void everybody_sends(FlatModel& model, Communicator& comm, int root) {
  const at::NoGradGuard no_grad;
  at::Tensor all = at::empty({comm.size(), model.params().numel()});
  comm.all_gather(model.params(), all)->wait();
  model.params().copy_(all[root]);
}

inline void broadcasts_twice(FlatModel& model, Communicator& comm, int root) {
  for (int i = 0; i < 2; ++i) right_broadcast(model, comm, root);
}

inline void zeroes_the_gradients(FlatModel& model, Communicator& comm, int root) {
  right_broadcast(model, comm, root);
  for (const auto& [name, parameter] : model.leaves()) {
    if (parameter.grad().defined()) parameter.grad().zero_();
  }
}

inline void mean(FlatGradients& grads, Communicator& comm) {
  right_all_reduce(grads, comm);
  for (at::Tensor& gradient : trainable_gradients(grads)) gradient.div_(comm.size());
}

inline void reduces_parameters(FlatGradients& grads, Communicator& comm) {
  for (const auto& [name, parameter] : grads.leaves()) {
    if (parameter.requires_grad()) comm.all_reduce(parameter.detach())->wait();
  }
}

inline void skips_the_last_tensor(FlatGradients& grads, Communicator& comm) {
  std::vector<at::Tensor> gradients = trainable_gradients(grads);
  gradients.pop_back();
  for (const at::Tensor& gradient : gradients) comm.all_reduce(gradient)->wait();
}

// Equal up to rounding, and no two ranks have the same bits.
inline void starts_with_its_own(FlatGradients& grads, Communicator& comm) {
  for (at::Tensor& gradient : trainable_gradients(grads)) {
    at::Tensor all = at::empty({comm.size(), gradient.numel()});
    comm.all_gather(gradient, all)->wait();
    for (int r = 0; r < comm.size(); ++r) {
      if (r != comm.rank()) gradient.add_(all[r].view_as(gradient));
    }
  }
}

inline void scales_before_and_after(FlatGradients& grads, Communicator& comm) {
  for (at::Tensor& gradient : trainable_gradients(grads)) {
    gradient.mul_(10);
    comm.all_reduce(gradient)->wait();
    gradient.div_(10);
  }
}

inline void reduces_row_by_row(FlatGradients& grads, Communicator& comm) {
  for (const at::Tensor& gradient : trainable_gradients(grads)) {
    for (const at::Tensor& row : gradient.unbind()) comm.all_reduce(row)->wait();
  }
}

inline void reduces_the_frozen_too(FlatGradients& grads, Communicator& comm) {
  for (const auto& [name, gradient] : named_views(grads.layout(), grads.flat()))
    comm.all_reduce(gradient)->wait();
}

inline void trains_as_well(FlatGradients& grads, Communicator& comm) {
  right_all_reduce(grads, comm);
  for (const auto& [name, parameter] : grads.leaves()) {
    if (parameter.requires_grad()) parameter.detach().sub_(parameter.grad());
  }
}

inline void one_flat_all_reduce(FlatGradients& grads, Communicator& comm) {
  comm.all_reduce(grads.flat())->wait();
}

inline void reduces_a_copy(FlatGradients& grads, Communicator& comm) {
  for (const at::Tensor& gradient : trainable_gradients(grads)) {
    comm.all_reduce(gradient.clone())->wait();
  }
}

inline void leaves_zeros_out(FlatGradients& grads, Communicator& comm) {
  for (const at::Tensor& gradient : trainable_gradients(grads)) {
    if (gradient.any().item<bool>()) comm.all_reduce(gradient)->wait();
  }
}

inline void waits_at_the_end(FlatGradients& grads, Communicator& comm) {
  std::vector<WorkPtr> works;
  for (const at::Tensor& gradient : trainable_gradients(grads)) {
    works.push_back(comm.all_reduce(gradient));
  }
  for (const WorkPtr& work : works) work->wait();
}

inline void never_waits(FlatGradients& grads, Communicator& comm) {
  for (const at::Tensor& gradient : trainable_gradients(grads)) comm.all_reduce(gradient);
}

inline void works_in_copies(FlatGradients& grads, Communicator& comm) {
  std::vector<at::Tensor> copies;
  for (const at::Tensor& gradient : trainable_gradients(grads)) copies.push_back(gradient.clone());
  for (const at::Tensor& copy : copies) comm.all_reduce(copy)->wait();
  std::size_t i = 0;
  for (at::Tensor& gradient : trainable_gradients(grads)) gradient.copy_(copies[i++]);
}

inline std::vector<WrongAnswer<NaiveDp>> wrong_broadcasts() {
  const auto with = [](auto wrong) { return NaiveDp{wrong, right_all_reduce}; };
  return {
      {"no broadcast", with(no_broadcast), 2,
       "rank 1: after broadcast_parameters() from rank 0 'wte' is", "after broadcast_parameters()"},
      {"broadcasts from rank 0, whatever the root", with(broadcasts_from_rank_0), 2,
       "rank 0: after broadcast_parameters() from rank 1 'wte' is", "from rank "},
      {"broadcasts what is trained", with(broadcasts_what_is_trained), 2,
       "rank 1: after broadcast_parameters() from rank 0 'frozen' is", " 'frozen"},
      {"broadcasts on the root alone", with(broadcasts_on_the_root_alone), 2,
       "would wait for each other forever: rank 0: broadcast of 1376 elements from rank 0; "
       "rank 1: nothing more;"},
      {"everybody sends", with(everybody_sends), 2, "bytes, not 0 at most", "bytes, not"},
      {"broadcasts twice", with(broadcasts_twice), 2,
       "rank 0: broadcast_parameters() from rank 0: "
       "this rank sent",
       "bytes, not"},
      {"zeroes the gradients", with(zeroes_the_gradients), 1,
       "after broadcast_parameters() from rank 0 a gradient is 0, not 7", "a gradient is 0, not 7"},
  };
}

// For the sums rank r's gradients are r + 1.
inline std::vector<WrongAnswer<NaiveDp>> wrong_all_reduces(int num_ranks) {
  const auto with = [](auto wrong) { return NaiveDp{right_broadcast, wrong}; };
  const double sum = num_ranks * (num_ranks + 1) / 2.0;
  const std::string in_wte =
      concat("rank 0: the sum of the ranks' gradients 1 to ", num_ranks, " in 'wte' is ");
  return {
      {"mean", with(mean), 2, concat(in_wte, sum / num_ranks, ", not ", sum, " ")},
      {"reduces parameters", with(reduces_parameters), 2, "leaves the parameters alone: 'wte' is"},
      {"trains as well", with(trains_as_well), 1, "leaves the parameters alone: 'wte' is",
       "leaves the parameters alone"},
      {"skips the last tensor", with(skips_the_last_tensor), 1,
       "asks for all_reduce of 1 element, all_reduce of 1280 elements, all_reduce of 15 elements; "
       "wanted in any order: all_reduce of 1 element, all_reduce of 1280 elements, "
       "all_reduce of 15 elements, all_reduce of 20 elements"},
      {"starts with its own", with(starts_with_its_own), 3,
       "the gradient of 'weight', added up in the order of the ranks, is"},
      {"scales before and after", with(scales_before_and_after), 1,
       "look for additions in another order, or a scaling after the sum",
       "added up in the order of the ranks"},
      {"reduces row by row", with(reduces_row_by_row), 1,
       "asks for all_reduce of 1 element, all_reduce of 1 element", "asks for all_reduce of"},
      {"reduces the frozen too", with(reduces_the_frozen_too), 1, "all_reduce of 9 elements"},
      {"one flat all-reduce", with(one_flat_all_reduce), 2,
       "'frozen' is frozen and left alone: its gradient is"},
      {"reduces a copy", with(reduces_a_copy), 2, concat(in_wte, "1, not ", sum, " ")},
      {"leaves zeros out", with(leaves_zeros_out), 2,
       "would wait for each other forever: rank 0: all_reduce of 1280 elements; "
       "rank 1: all_reduce of 1 element;"},
      {"waits at the end", with(waits_at_the_end), 1, "4 operations are in flight at once, not 1"},
      {"never waits", with(never_waits), 1, "4 operations are never waited for"},
      {"works in copies", with(works_in_copies), 1,
       "bytes of scratch, not 5120 (the largest tensor) at most", "bytes of scratch"},
  };
}

inline std::vector<WrongAnswer<NaiveDp>> wrong_answers(int num_ranks) {
  std::vector<WrongAnswer<NaiveDp>> all = wrong_broadcasts();
  for (WrongAnswer<NaiveDp>& wrong : wrong_all_reduces(num_ranks)) all.push_back(std::move(wrong));
  return all;
}

}  // namespace ladder::step3
