#include "step5_zero1/exercise/grader.hpp"

#include <ATen/ops/cat.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <cmath>

#include "common/comm/traffic_theory.hpp"
#include "common/core/memory_ledger.hpp"
#include "common/optim/norm.hpp"
#include "common/testing/examination.hpp"
#include "common/testing/recording_communicator.hpp"
#include "step5_zero1/exercise/hostile_model.hpp"
#include "step5_zero1/exercise/meter.hpp"

namespace ladder::step5 {
namespace {

// What the watch over the ranks may itself hold for a moment.
constexpr std::int64_t kWatchBytes = 4096;

// This rank's slices of a gradient, in units of these numbers of blocks: zeros to put values into.
std::vector<at::Tensor> zero_slices(const std::vector<std::int64_t>& num_blocks) {
  std::vector<at::Tensor> slices;
  for (const std::int64_t blocks : num_blocks) slices.push_back(at::zeros({blocks * kNormBlock}));
  return slices;
}

class Grade : public Examination {
 public:
  Grade(const ShardedAttempt& attempt, Communicator& comm) : Examination(comm), attempt_(attempt) {}

  // The first element of each slice is rank + 1; the sum of the others depends on its order.
  void reduces_a_unit() {
    examine_attempt("start_reduce_scatter()", [this](RecordingCommunicator& comm) {
      constexpr std::int64_t kSlice = 4 * kNormBlock;
      const auto share = [&](int rank) {
        const at::Tensor values = values_of(rank, num_ranks_ * kSlice, at::kFloat);
        values.view({num_ranks_, kSlice}).select(1, 0).fill_(rank + 1);
        return values;
      };
      const at::Tensor unit = share(rank_), wanted = unit.clone();
      at::Tensor sum = share(0);
      for (int r = 1; r < num_ranks_; ++r) sum = sum + share(r);
      own_slice(wanted).copy_(own_slice(sum));
      const Meter meter(comm);
      const WorkPtr work = attempt_.start_reduce_scatter(comm, unit);
      if (!work) return fault("start_reduce_scatter() returns no Work");
      expect("the number of operations that start_reduce_scatter() waits for, holding up backward,",
             comm.recording().num_waited_for, 0);
      work->wait();
      expect_costs("the reduction of a unit", meter,
                   reduce_scatter_traffic(unit.numel(), 4, num_ranks_, rank_),
                   4 * (num_ranks_ - 1) * kSlice);
      expect("the own slice of a unit after its reduction", own_slice(unit), own_slice(wanted));
      expect("a unit after its reduction, of which only the own slice is to change,", unit, wanted);
    });
  }

  // Two steps, against one process with one whole Optimizer. What is not the own is not a number.
  void updates_the_own_slices() {
    examine_attempt("ShardedOptimizer", [this](RecordingCommunicator& /*comm*/) {
      Sharded sharded(num_ranks_, rank_);
      auto& [model, plan, params, grads] = sharded;
      HostileModel alone(num_ranks_);
      const std::int64_t before = read_memory().live(MemoryCategory::kOptimizer);
      const auto optimizer = attempt_.make_optimizer(plan, params, grads, {});
      const std::int64_t held = read_memory().live(MemoryCategory::kOptimizer) - before;
      expect("the number of bytes of AdamW's state that a rank holds", held, 8 * plan.numel);
      if (held != 8 * plan.numel) return;
      Optimizer whole(alone.flat, alone.grads, {});
      const at::Tensor wanted = model.flat.params().clone();
      for (std::uint64_t step = 1; step <= 2; ++step) {
        alone.backward_of_all(num_ranks_, 1, step);
        whole.step(1e-2);
        model.grads.flat().fill_(std::nan(""));
        copy(plan.slices_of_full(alone.grads.flat()), grads);
        optimizer->step(1e-2);
        for (std::size_t u = 0; u < params.size(); ++u) {
          expect(
              concat("the own slice of unit '", plan.layout.units[u].name, "' after step ", step),
              params[u], plan.slices_of_full(alone.flat.params())[u]);
        }
      }
      copy(params, plan.slices_of_full(wanted));
      expect("the parameters, of which only the own slices are to change,", model.flat.params(),
             wanted);
      for (std::size_t i = 0; i < std::min(optimizer->state().size(), whole.state().size()); ++i) {
        expect(concat(whole.state()[i].name, " of the own slices, unit after unit, after step 2"),
               optimizer->state()[i].tensor, at::cat(plan.slices_of_full(whole.state()[i].tensor)));
      }
    });
  }

  void follows_its_options() {
    examine_attempt("ShardedOptimizer, with SGD", [this](RecordingCommunicator& /*comm*/) {
      Sharded sharded(num_ranks_, rank_);
      HostileModel alone(num_ranks_);
      const OptimizerOptions options = {.kind = OptimizerKind::kSgd, .weight_decay = 0.5};
      const std::int64_t before = read_memory().live(MemoryCategory::kOptimizer);
      const auto optimizer =
          attempt_.make_optimizer(sharded.plan, sharded.params, sharded.grads, options);
      expect("the number of bytes of SGD's state that a rank holds",
             read_memory().live(MemoryCategory::kOptimizer) - before, std::int64_t{0});
      alone.backward_of_all(num_ranks_, 1, 1);
      Optimizer(alone.flat, alone.grads, options).step(1e-2);
      copy(sharded.plan.slices_of_full(alone.grads.flat()), sharded.grads);
      optimizer->step(1e-2);
      expect("the own slices after a step of SGD", at::cat(sharded.params),
             at::cat(sharded.plan.slices_of_full(alone.flat.params())));
    });
  }

  void takes_the_norm_of_one_process() {
    examine_attempt("sharded_norm()", [this](RecordingCommunicator& comm) {
      const std::vector<at::Tensor> ones = zero_slices({1, 2});
      ones[0].narrow(0, 0, rank_ + 1).fill_(1);
      ones[1].narrow(0, 1020, 8).fill_(1);  // over the border of two blocks
      const int num_ones = num_ranks_ * (num_ranks_ + 1) / 2 + 8 * num_ranks_;
      expect_norm(concat("the norm of ", num_ones, " ones"), ones, std::sqrt(num_ones), comm);

      // A square of 1, and on each rank but the first 64 that are so small that none of them would
      // change a sum of 1. If they come before it, they make up something first.
      for (const std::size_t unit_of_large : {std::size_t{0}, std::size_t{1}}) {
        const std::vector<at::Tensor> slices = zero_slices({64, 1});
        if (rank_ == 0) {
          slices[unit_of_large][0] = 1.0;
        } else {
          slices[0].view({64, kNormBlock}).select(1, 0).fill_(0x1p-27);
        }
        const bool is_last = unit_of_large == 1;
        expect_norm(
            concat("the norm of small blocks ", is_last ? "before" : "after", " a large one"),
            slices, is_last ? std::sqrt(1 + (num_ranks_ - 1) * 0x1p-48) : 1.0, comm);
      }

      Sharded sharded(num_ranks_, rank_);
      const FlatGradients& model_grads = sharded.model.grads;
      const FlatLayout& layout = model_grads.layout();
      sharded.model.backward_of_all(num_ranks_, 1, 3);
      const Meter meter(comm);
      expect_norm("the norm of a model's gradients", sharded.grads,
                  flat_norm(layout, model_grads.flat()), comm);
      expect_costs("the norm", meter, norm_traffic(layout, num_ranks_, rank_),
                   2 * 8 * layout.numel / kNormBlock);
    });
  }

  void gathers_the_parameters() {
    examine_attempt("all_gather_parameters()", [this](RecordingCommunicator& comm) {
      Sharded sharded(num_ranks_, rank_);
      FlatModel& model = sharded.model.flat;
      const FlatLayout& layout = model.layout();
      const at::Tensor wanted = values_of(0, layout.numel, at::kFloat, 77);
      model.params().fill_(-1);
      copy(sharded.plan.slices_of_full(wanted), sharded.params);
      const std::vector<GradientBucket> units = plan_unit_buckets(layout);
      Traffic theory;
      for (const GradientBucket& unit : units)
        theory += all_gather_traffic(unit.numel, 4, num_ranks_, rank_);
      const Meter meter(comm);
      attempt_.all_gather_parameters(model, comm);
      expect("the most units that all_gather_parameters() has in flight",
             comm.recording().most_on_their_way, static_cast<int>(units.size()));
      expect("the number of started operations that all_gather_parameters() does not wait for",
             comm.recording().num_on_their_way(), 0);
      expect_costs("all_gather_parameters()", meter, theory, 0);
      for (const FlatUnit& unit : layout.units) {
        if (unit.name == "frozen") continue;  // nothing in it changes: it need not be sent
        expect(concat("unit '", unit.name, "' after all_gather_parameters()"),
               model.params().narrow(0, unit.start, unit.numel),
               wanted.narrow(0, unit.start, unit.numel));
      }
    });
  }

  // As the loop of train.cpp puts it together, behind the hooks of step 4.
  void trains() {
    examine_attempt("two steps of two microbatches", [this](RecordingCommunicator& comm) {
      Sharded sharded(num_ranks_, rank_);
      auto& [model, plan, params, grads] = sharded;
      HostileModel alone(num_ranks_);
      GradientBucketer bucketer(model.grads, plan_unit_buckets(plan.layout), comm,
                                attempt_.start_reduce_scatter);
      const auto optimizer = attempt_.make_optimizer(plan, params, grads, {});
      Optimizer whole(alone.flat, alone.grads, {});
      for (std::uint64_t step = 1; step <= 2; ++step) {
        alone.backward_of_all(num_ranks_, 2, step);
        whole.step(1e-2, Clipping(gradient_norm(alone.grads), 0.5).factor);
        model.grads.zero();
        bucketer.arm(2);
        for (int j = 0; j < 2; ++j) model.backward(rank_, HostileModel::seed_of(step, j));
        bucketer.wait();
        optimizer->step(1e-2, Clipping(attempt_.sharded_norm(grads, comm), 0.5).factor);
        attempt_.all_gather_parameters(model.flat, comm);
        expect(concat("all parameters after step ", step, " of training"), model.flat.params(),
               alone.flat.params());
      }
    });
  }

 private:
  // A model, and this rank's slices of it.
  struct Sharded {
    Sharded(int num_ranks, int rank)
        : model(num_ranks), plan(plan_shards(model.flat.layout(), num_ranks, rank)) {}
    HostileModel model;
    ShardPlan plan;
    std::vector<at::Tensor> params = plan.slices_of_full(model.flat.params());
    std::vector<at::Tensor> grads = plan.slices_of_full(model.grads.flat());
  };

  void expect_costs(const std::string& what, const Meter& meter, const Traffic& theory,
                    std::int64_t scratch_bytes) {
    expect(what + ": the number of bytes sent", meter.sent_bytes(), theory.bytes_sent());
    if (meter.most_held_bytes() > scratch_bytes + kWatchBytes) {
      fault(concat(what, " holds ", meter.most_held_bytes(), " bytes for a while, where ",
                   scratch_bytes, " are enough"));
    }
  }

  void expect_norm(const std::string& what, const std::vector<at::Tensor>& slices, double wanted,
                   Communicator& comm) {
    expect(what, attempt_.sharded_norm(slices, comm), wanted);
  }

  template <class Part>
  void examine_attempt(const std::string& what, Part part) {
    examine<RecordingCommunicator>(what, part);
  }

  at::Tensor own_slice(const at::Tensor& unit) const {
    return unit.view({num_ranks_, -1}).select(0, rank_);
  }
  static void copy(const std::vector<at::Tensor>& from, const std::vector<at::Tensor>& to) {
    for (std::size_t u = 0; u < from.size(); ++u) to[u].copy_(from[u]);
  }

  const ShardedAttempt& attempt_;
  const int num_ranks_ = comm_.size(), rank_ = comm_.rank();
};

}  // namespace

std::vector<std::string> grade(const ShardedAttempt& attempt, Communicator& comm) {
  install_memory_ledger();
  Grade grade(attempt, comm);
  grade.reduces_a_unit();
  grade.updates_the_own_slices();
  grade.follows_its_options();
  grade.takes_the_norm_of_one_process();
  grade.gathers_the_parameters();
  grade.trains();
  return grade.faults();
}

}  // namespace ladder::step5
