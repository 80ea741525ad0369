// Sharded optimizers that look right and are not. The grader must reject each of them, for the
// reason given.
#pragma once

#include <ATen/ops/empty.h>

#include <cmath>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "common/core/check.hpp"
#include "common/testing/wrong_answer.hpp"
#include "step5_zero1/exercise/right_attempt.hpp"

namespace ladder::step5 {

class DoneWork final : public Work {
 public:
  bool test() override { return true; }
  void wait() override {}
};

// What comes to a rank is divided by the number of ranks when it is waited for.
class MeanWork final : public Work {
 public:
  MeanWork(WorkPtr inner, at::Tensor sum, int num_ranks)
      : inner_(std::move(inner)), sum_(std::move(sum)), num_ranks_(num_ranks) {}
  bool test() override { return inner_->test(); }
  void wait() override {
    inner_->wait();
    sum_.div_(num_ranks_);
  }

 private:
  WorkPtr inner_;
  at::Tensor sum_;
  int num_ranks_;
};

inline WorkPtr mean(Communicator& comm, const at::Tensor& unit) {
  const at::Tensor own = own_part(unit, comm);
  return std::make_unique<MeanWork>(comm.reduce_scatter(unit, own), own, comm.size());
}

// Everybody gets everything, and adds up its own slice.
inline WorkPtr sends_n_copies(Communicator& comm, const at::Tensor& unit) {
  const at::Tensor all = at::empty({comm.size(), unit.numel()});
  comm.all_gather(unit, all)->wait();
  at::Tensor sum = own_part(all[0], comm);
  for (int r = 1; r < comm.size(); ++r) sum = sum + own_part(all[r], comm);
  own_part(unit, comm).copy_(sum);
  return std::make_unique<DoneWork>();
}

// An Optimizer whose slices have been tampered with, and with state for so many elements.
template <class Tamper>
auto tampered(Tamper tamper, int state_factor = 1) {
  return [tamper, state_factor](const ShardPlan& plan, const Slices& params, const Slices& grads,
                                const OptimizerOptions& options) {
    std::vector<OptimizerSlice> slices = plan_own_updates(plan, params, grads);
    for (OptimizerSlice& slice : slices) tamper(plan, slice);
    return std::make_unique<Optimizer>(slices, state_factor * plan.numel, options);
  };
}

// ZeRO-1 that shards the work and not the state.
inline auto unsharded(int num_ranks) {
  return tampered([](const ShardPlan&, OptimizerSlice&) {}, num_ranks);
}

// State counted from each unit's start: the units share it.
inline void overlap(const ShardPlan& plan, OptimizerSlice& slice) {
  for (const UnitSlice& unit : plan.slices) {
    if (slice.state_start >= unit.shard_start && slice.state_start < unit.shard_start + unit.numel)
      return void(slice.state_start -= unit.shard_start);
  }
}

// Whole slices, as if there were neither frozen tensors nor tensors without weight decay.
inline std::unique_ptr<Optimizer> updates_all(const ShardPlan& plan, const Slices& params,
                                              const Slices& grads,
                                              const OptimizerOptions& options) {
  std::vector<OptimizerSlice> slices;
  for (std::size_t u = 0; u < params.size(); ++u)
    slices.push_back({params[u], grads[u], plan.slices[u].shard_start, true});
  return std::make_unique<Optimizer>(slices, plan.numel, options);
}

inline double local_norm(const Slices& slices, Communicator& /*comm*/) {
  return norm_of(block_sums_of(slices));
}

inline double norm_of_norms(const Slices& slices, Communicator& comm) {
  const double own = local_norm(slices, comm);
  return std::sqrt(all_reduce_sum(own * own, comm));
}

inline double rank_after_rank(const Slices& slices, Communicator& comm) {
  return norm_in_order(gathered_block_sums(slices, comm));
}

// The right number, but everybody gets all gradients for it.
inline double norm_of_all_gradients(const Slices& slices, Communicator& comm) {
  std::vector<double> sums;
  for (const at::Tensor& slice : slices) {
    const at::Tensor full = at::empty({comm.size() * slice.numel()});
    comm.all_gather(slice, full)->wait();
    append_block_sums(full, sums);
  }
  return norm_of(sums);
}

inline double scales_by_own_norm(const Slices& grads, double clip_norm, Communicator& comm) {
  const double norm = right_norm(grads, comm);
  scale(grads, clip_factor(local_norm(grads, comm), clip_norm));
  return norm;
}

// Who is short enough sees no need to ask the others.
inline double asks_only_if_long(const Slices& grads, double clip_norm, Communicator& comm) {
  const double own = local_norm(grads, comm);
  if (own <= clip_norm) return own;
  const double norm = right_norm(grads, comm);
  scale(grads, clip_factor(norm, clip_norm));
  return norm;
}

inline void forgets_a_unit(FlatModel& model, Communicator& comm) {
  std::vector<GradientBucket> plan = plan_unit_buckets(model.layout());
  plan.pop_back();
  gather(model, plan, comm);
}

// As if rank r's slices lay side by side: one gather of everything.
inline void gathers_in_one_piece(FlatModel& model, Communicator& comm) {
  comm.all_gather(own_part(model.params(), comm), model.params())->wait();
}

inline void does_not_wait(FlatModel& model, Communicator& comm) {
  for (const GradientBucket& unit : plan_unit_buckets(model.layout())) {
    const at::Tensor full = model.params().narrow(0, unit.start, unit.numel);
    comm.all_gather(own_part(full, comm), full);
  }
}

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
      {"scales by the own norm", with(&A::clip_gradients, scales_by_own_norm), 2,
       "the own gradient after clip_gradients(1) is "},
      {"local norm", with(&A::sharded_norm, local_norm), 2, "ones is 3.1622776601683795, not "},
      {"norm of norms", with(&A::sharded_norm, norm_of_norms), 2,
       "the norm of small blocks after a large one is 1.0000000000000"},
      {"rank after rank", with(&A::sharded_norm, rank_after_rank), 2,
       "the norm of small blocks before a large one is 1, not 1.0000000000000"},
      {"gathers the gradients", with(&A::sharded_norm, norm_of_all_gradients), 2,
       "the norm: the number of bytes sent is "},
      {"asks only if long", with(&A::clip_gradients, asks_only_if_long), 2,
       "would wait for each other for ever"},
      {"forgets a unit", with(&A::all_gather_parameters, forgets_a_unit), 2,
       "unit 'embedding' after all_gather_parameters() is -1, not "},
      {"gathers in one piece", with(&A::all_gather_parameters, gathers_in_one_piece), 2,
       "all_gather_parameters(): the number of bytes sent is "},
      {"does not wait", with(&A::all_gather_parameters, does_not_wait), 1,
       "does not wait for is 3, not 0"},
  };
}

}  // namespace ladder::step5
