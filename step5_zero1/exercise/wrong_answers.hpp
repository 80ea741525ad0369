// What the grader must reject: each for the reason given.
#pragma once

#include <string>
#include <vector>

#include "common/core/check.hpp"
#include "common/testing/wrong_answer.hpp"
#include "step5_zero1/exercise/wrong_parts.hpp"

namespace ladder::step5 {

inline std::vector<WrongAnswer<ShardedAttempt>> wrong_answers(int num_ranks) {
  const auto with = [](auto ShardedAttempt::*part, auto wrong) {
    ShardedAttempt attempt = right_attempt();
    attempt.*part = wrong;
    return attempt;
  };
  using A = ShardedAttempt;
  const double sum = num_ranks * (num_ranks + 1) / 2.0;
  const std::string after_reduction = "the own slice of a unit after its reduction is ";
  const std::int64_t slice_bytes = 4 * 4096;  // of the unit that is reduced
  return {
      {"mean", with(&A::start_reduce_scatter, mean), 2,
       concat(after_reduction, sum / num_ranks, ", not ", sum)},
      {"into a copy",
       with(&A::start_reduce_scatter,
            [](Communicator& comm, const at::Tensor& unit) {
              return comm.reduce_scatter(unit, own_part(unit, comm).clone());
            }),
       2, concat(after_reduction, "1, not ", sum)},
      {"all_reduce",
       with(&A::start_reduce_scatter,
            [](Communicator& comm, const at::Tensor& unit) { return comm.all_reduce(unit); }),
       2,
       concat("the number of bytes sent is ", 2 * (num_ranks - 1) * slice_bytes, ", not ",
              (num_ranks - 1) * slice_bytes)},
      {"sends N copies", with(&A::start_reduce_scatter, sends_n_copies), 2,
       concat("the number of bytes sent is ", num_ranks * (num_ranks - 1) * slice_bytes, ", not ",
              (num_ranks - 1) * slice_bytes)},
      {"tidies up", with(&A::start_reduce_scatter, tidies_up), 2,
       "of which only the own slice is to change,", "of which only the own slice is to change,"},
      {"waits in the hook",
       with(&A::start_reduce_scatter,
            [](Communicator& comm, const at::Tensor& unit) {
              comm.reduce_scatter(unit, own_part(unit, comm))->wait();
              return std::make_unique<DoneWork>();
            }),
       1, "holding up backward, is 1, not 0"},
      {"unsharded", with(&A::make_optimizer, unsharded(num_ranks)), 2,
       "the number of bytes of AdamW's state that a rank holds is "},
      {"units share their state", with(&A::make_optimizer, tampered(overlap)), 1,
       "the own slice of unit 'block' after step 1 is "},
      {"updates all", with(&A::make_optimizer, updates_all), 1,
       "the own slice of unit 'frozen' after step 1 is "},
      {"updates copies",
       with(&A::make_optimizer,
            tampered([](const ShardPlan&, OptimizerSlice& of) { of.params = of.params.clone(); })),
       1, "the own slice of unit 'embedding' after step 1 is "},
      {"reads copies", with(&A::make_optimizer, tampered([](const ShardPlan&, OptimizerSlice& of) {
         of.grads = of.grads.clone();
       })),
       1, "the own slice of unit 'embedding' after step 1 is "},
      {"always AdamW", with(&A::make_optimizer, always_adamw), 1,
       "the number of bytes of SGD's state that a rank holds is ", " SGD"},
      {"local norm", with(&A::sharded_norm, local_norm), 2, "ones is 3.1622776601683795, not "},
      {"norm of norms", with(&A::sharded_norm, norm_of_norms), 2,
       "the norm of small blocks after a large one is 1.0000000000000"},
      {"rank after rank", with(&A::sharded_norm, rank_after_rank), 2,
       "the norm of small blocks before a large one is 1, not 1.0000000000000"},
      {"gathers the gradients", with(&A::sharded_norm, norm_of_all_gradients), 2,
       "the norm: the number of bytes sent is "},
      {"asks only if long", with(&A::sharded_norm, asks_only_if_long), 2,
       "would wait for each other forever"},
      {"forgets a unit", with(&A::all_gather_parameters, forgets_a_unit), 2,
       "unit 'embedding' after all_gather_parameters() is -1, not "},
      {"gathers in one piece", with(&A::all_gather_parameters, gathers_in_one_piece), 2,
       "all_gather_parameters(): the number of bytes sent is "},
      {"gathers the frozen too", with(&A::all_gather_parameters, gathers_the_frozen_too), 1,
       "the most units that all_gather_parameters() has in flight is 4, not 3",
       "all_gather_parameters()"},
      {"one after the other", with(&A::all_gather_parameters, one_after_the_other), 1,
       "the most units that all_gather_parameters() has in flight is 1, not 3",
       "the most units that all_gather_parameters() has in flight is 1, not 3"},
      {"does not wait", with(&A::all_gather_parameters, does_not_wait), 1,
       "does not wait for is 3, not 0"},
  };
}

}  // namespace ladder::step5
