// Parts of a sharded optimizer that look right and are not: each takes the place of one part of
// right_attempt().
#pragma once

#include <cmath>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "step5_zero1/exercise/right_attempt.hpp"

namespace ladder::step5 {

// Something is done when the inner one has been waited for.
class WorkAndThen final : public Work {
 public:
  WorkAndThen(WorkPtr inner, std::function<void()> then)
      : inner_(std::move(inner)), then_(std::move(then)) {}
  bool test() override { return inner_->test(); }
  void wait() override {
    inner_->wait();
    then_();
  }

 private:
  WorkPtr inner_;
  std::function<void()> then_;
};

inline WorkPtr mean(Communicator& comm, const at::Tensor& unit) {
  const at::Tensor own = own_part(unit, comm);
  return std::make_unique<WorkAndThen>(comm.reduce_scatter(unit, own),
                                       [own, n = comm.size()] { own.div_(n); });
}

// What is of no further use is zeroed.
inline WorkPtr tidies_up(Communicator& comm, const at::Tensor& unit) {
  return std::make_unique<WorkAndThen>(comm.reduce_scatter(unit, own_part(unit, comm)),
                                       [unit, n = comm.size(), own = comm.rank()] {
                                         for (int r = 0; r < n; ++r) {
                                           if (r != own) unit.view({n, -1}).select(0, r).zero_();
                                         }
                                       });
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
    return std::make_unique<Optimizer>(slices, state_factor * plan.numel, plan.layout, options);
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
  return std::make_unique<Optimizer>(slices, plan.numel, plan.layout, options);
}

inline std::unique_ptr<Optimizer> always_adamw(const ShardPlan& plan, const Slices& params,
                                               const Slices& grads,
                                               const OptimizerOptions& /*options*/) {
  return right_attempt().make_optimizer(plan, params, grads, {});
}

inline double local_norm(const Slices& slices, Communicator& /*comm*/) {
  return norm_of(block_sums(slices));
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
  Slices units;
  for (const at::Tensor& slice : slices) {
    units.push_back(at::empty({comm.size() * slice.numel()}));
    comm.all_gather(slice, units.back())->wait();
  }
  return norm_of(block_sums(units));
}

// A rank whose own part is short does not ask the others.
inline double asks_only_if_long(const Slices& slices, Communicator& comm) {
  const double own = local_norm(slices, comm);
  return own < 1 ? own : right_norm(slices, comm);
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

inline void gathers_the_frozen_too(FlatModel& model, Communicator& comm) {
  std::vector<GradientBucket> units = plan_unit_buckets(model.layout());
  for (const FlatUnit& unit : model.layout().units) {
    if (unit.name == "frozen") units.push_back({unit.start, unit.numel, {}});
  }
  gather(model, units, comm);
}

inline void one_after_the_other(FlatModel& model, Communicator& comm) {
  for (const GradientBucket& unit : plan_unit_buckets(model.layout()))
    start_gather(model, unit, comm)->wait();
}

inline void does_not_wait(FlatModel& model, Communicator& comm) {
  for (const GradientBucket& unit : plan_unit_buckets(model.layout()))
    start_gather(model, unit, comm);
}

}  // namespace ladder::step5
