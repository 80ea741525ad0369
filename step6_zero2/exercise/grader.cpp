#include "step6_zero2/exercise/grader.hpp"

#include <ATen/ops/cat.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <cmath>

#include "common/comm/self_communicator.hpp"
#include "common/core/check.hpp"
#include "common/core/memory_ledger.hpp"
#include "common/optim/flat_model.hpp"
#include "common/testing/examination.hpp"
#include "step6_zero2/exercise/recording_communicator.hpp"
#include "step6_zero2/exercise/uninitialized_memory.hpp"
#include "step6_zero2/sharder_cost.hpp"

namespace ladder::step6 {
namespace {

constexpr std::int64_t kNumUnits = 5;
constexpr std::int64_t kShortNumel = 10;

// Five units, no two of one length: who starts the wrong one sends the wrong number of elements.
// Each has a short tensor and a long one, with padding behind both. The loss is linear, so that each
// rank's gradients are numbers that every rank can work out.
struct Chain {
  Chain(int the_rank, int the_size)
      : rank(the_rank),
        size(the_size),
        flat(units(the_size), shard_multiple(the_size), FlatGrads::kElsewhere),
        plan(plan_shards(flat.layout(), the_size, the_rank)),
        buckets(plan_unit_buckets(flat.layout())) {}

  // What rank r's microbatch j gives to each element: in a short tensor a number that one can add up
  // in one's head, in a long one numbers whose sum depends on the order.
  static float share(std::int64_t r, std::int64_t j, std::size_t tensor) {
    if (tensor % 2 == 0) return static_cast<float>((r + 1) * (j + 1));
    const float sign = (r + j) % 2 == 0 ? 1.0F : -1.0F;
    return sign * (1.0F + 0.1F * static_cast<float>(tensor)) *
           std::pow(37.0F, static_cast<float>((r * 3 + j * 2) % 5) - 2.0F);
  }

  // Backward goes from the last unit of `order` to the first, and in a unit from its last tensor.
  void backward(const std::vector<std::size_t>& order, std::int64_t microbatch) {
    at::Tensor loss = at::zeros({});
    for (const std::size_t unit : order) {
      for (const std::size_t t : {2 * unit, 2 * unit + 1}) {
        if (t != left_out) loss = loss + (leaf(t) * share(rank, microbatch, t)).sum();
      }
    }
    loss.backward();
  }

  // This rank's slices of the fold: in each microbatch the ranks in order, then the microbatches.
  at::Tensor wanted(std::int64_t num_microbatches) const {
    const at::Tensor full = at::zeros({plan.layout.numel});
    for (std::size_t t = 0; t < plan.layout.tensors.size(); ++t) {
      float sum = 0;
      for (std::int64_t j = 0; j < num_microbatches; ++j) {
        float of_ranks = share(0, j, t);
        for (int r = 1; r < size; ++r) of_ranks += share(r, j, t);
        sum += of_ranks;
      }
      full.narrow(0, plan.layout.tensors[t].start, plan.layout.tensors[t].numel).fill_(sum);
    }
    return at::cat(plan.slices_of_full(full));
  }

  at::Tensor leaf(std::size_t t) const { return flat.leaves()[t].tensor; }

  static std::vector<Unit> units(int size) {
    std::vector<Unit> list;
    for (std::int64_t u = 0; u < kNumUnits; ++u) {
      const auto ones = [](std::int64_t numel) {
        return at::ones({numel}).set_requires_grad(true);
      };
      list.push_back({concat("unit", u),
                      {{concat("unit", u, ".short"), ones(kShortNumel)},
                       {concat("unit", u, ".long"), ones((u + 1) * shard_multiple(size) - 50)}}});
    }
    return list;
  }

  int rank;
  int size;
  FlatModel flat;
  ShardPlan plan;
  std::vector<GradientBucket> buckets;   // in the order in which they leave
  std::size_t left_out = 2 * kNumUnits;  // a tensor that takes no part
};

using Order = std::vector<std::size_t>;
const Order kForward = {0, 1, 2, 3, 4};  // backward is in the plan's order
const Order kMixed = {3, 1, 4, 0, 2};

class Grade : public Examination {
 public:
  Grade(const MakeSharder& attempt, Communicator& comm) : Examination(comm), attempt_(attempt) {}

  // Two steps of three microbatches: numbers to the bit, bytes to the byte.
  void sums_of_several_microbatches() {
    examine_sharder("two steps of three microbatches", [this](RecordingCommunicator& comm) {
      Chain chain(comm.rank(), comm.size());
      const UninitializedIsNan guard;
      const SharderAttempt sharder = make(chain, comm);
      for (int step = 1; step <= 2; ++step) {
        const WorkCounts before = comm.recording();
        const std::int64_t bytes_before = comm.traffic().bytes_sent();
        sharder.grad_shard.zero_();
        sharder.arm(3);
        for (std::int64_t j = 0; j < 3; ++j) chain.backward(kForward, j);
        sharder.wait();
        if (comm.recording().num_on_their_way() > 0)
          return fault("wait() returns while a reduce_scatter is on its way");
        const std::string where = concat("step ", step, " of three microbatches");
        expect("the gradient shard after " + where, sharder.grad_shard, chain.wanted(3));
        expect("the number of reduce_scatters of " + where,
               comm.recording().num_started - before.num_started, static_cast<int>(3 * kNumUnits));
        expect("the number of bytes sent by " + where, comm.traffic().bytes_sent() - bytes_before,
               3 * sharder_traffic(chain.plan.layout, comm.size(), comm.rank()).bytes_sent());
      }
    });
  }

  // When the very last gradient is computed, all units but its own have left, and the memory of all
  // but two is free again.
  void overlaps_in_little_memory() {
    examine_sharder("overlap and memory", [this](RecordingCommunicator& comm) {
      Chain chain(comm.rank(), comm.size());
      const std::int64_t gradients_before = read_memory().live(MemoryCategory::kGradients);
      const SharderAttempt sharder = make(chain, comm);
      WorkCounts at_last;
      std::int64_t total_at_last = 0;
      chain.leaf(0).register_hook([&](const at::Tensor& /*grad*/) {
        at_last = comm.recording();
        total_at_last = read_memory().total_live_bytes;
      });
      const std::int64_t total_before = read_memory().total_live_bytes;
      reset_memory_peaks();
      sharder.arm(2);
      for (std::int64_t j = 0; j < 2; ++j) chain.backward(kForward, j);
      const WorkCounts after_backward = comm.recording();
      sharder.wait();
      const MemoryReading memory = read_memory();

      expect("the number of reduce_scatters that have left before the last gradient is computed",
             at_last.num_started, static_cast<int>(2 * kNumUnits - 1));
      expect("the number of reduce_scatters on their way when the last gradient is computed",
             at_last.num_on_their_way(), 1);
      if (after_backward.num_tests == 0)
        fault("no hook calls test(): MPI makes no progress by itself");
      expect("the number of reduce_scatters that were waited for when wait() returns",
             comm.recording().num_waited_for, static_cast<int>(2 * kNumUnits));

      const std::int64_t shard_bytes = 4 * chain.plan.numel;
      expect("the most bytes of gradients (MemoryCategory::kGradients) that two microbatches hold",
             memory.peak(MemoryCategory::kGradients) - gradients_before,
             shard_bytes + gradient_bytes_in_flight(chain.plan.layout, 2));
      expect("the number of bytes of gradients that are left after wait()",
             memory.live(MemoryCategory::kGradients) - gradients_before, shard_bytes);
      // Unit 0 fills, unit 1 is on its way with the transport's scratch; and the graph's numbers.
      const auto bytes = [&](std::size_t unit) { return 4 * chain.plan.layout.units[unit].numel; };
      const std::int64_t bound = bytes(0) + 2 * bytes(1) + 2048;
      if (total_at_last - total_before > bound) {
        fault(concat("the number of bytes held when the last gradient is computed is ",
                     total_at_last - total_before, ", more than ", bound,
                     ": do the .grad stay, or buffers of units that have left?"));
      }
    });
  }

  // Autograd finishes in another order than the plan's: on all ranks, then on every second one.
  void starts_in_plan_order() {
    examine_sharder("another order than the plan's",
                    [this](RecordingCommunicator& comm) { expect_plan_order(comm, kMixed); });
    examine_sharder("ranks that finish in different orders", [this](RecordingCommunicator& comm) {
      expect_plan_order(comm, comm.rank() % 2 == 0 ? kMixed : kForward);
    });
  }

  // A parameter without a gradient, seen from a world of its own: nothing is left on its way.
  void names_what_is_unused() {
    examine_sharder("an unused parameter", [this](RecordingCommunicator& /*comm*/) {
      SelfCommunicator alone;
      Chain chain(alone.rank(), alone.size());
      const SharderAttempt sharder = make(chain, alone);
      sharder.arm(1);
      chain.left_out = 5;
      chain.backward(kForward, 0);
      expect_error("'unit2.long' got no gradient: wait()", {"unit2.long"}, sharder.wait);
    });
  }

  void leaves_unarmed_backwards_alone() {
    examine_sharder("a backward without arm()", [this](RecordingCommunicator& comm) {
      Chain chain(comm.rank(), comm.size());
      const SharderAttempt sharder = make(chain, comm);
      chain.backward(kForward, 0);
      expect("the number of reduce_scatters of a backward without arm()",
             comm.recording().num_started, 0);
      for (std::size_t t = 0; t < chain.plan.layout.tensors.size(); ++t) {
        if (!chain.leaf(t).grad().defined())
          return fault("after a backward without arm() a .grad is gone: leave it to autograd");
        expect(concat("the .grad of '", chain.plan.layout.tensors[t].name, "' without arm()"),
               chain.leaf(t).grad(), at::ones_like(chain.leaf(t)) * Chain::share(chain.rank, 0, t));
      }
    });
  }

 private:
  template <class Part>
  void examine_sharder(const std::string& what, Part part) {
    examine<RecordingCommunicator>(what, part);
  }

  SharderAttempt make(const Chain& chain, Communicator& comm) const {
    return attempt_(chain.plan, chain.flat.leaves(), comm);
  }

  void expect_plan_order(RecordingCommunicator& comm, const Order& order) {
    Chain chain(comm.rank(), comm.size());
    const SharderAttempt sharder = make(chain, comm);
    sharder.arm(1);
    chain.backward(order, 0);
    sharder.wait();
    expect("the gradient shard, computed in another order than the plan's,", sharder.grad_shard,
           chain.wanted(1));
    for (std::size_t i = 0; i < std::min(comm.calls().size(), chain.buckets.size()); ++i) {
      expect(concat("collective ", i, ", counted from 0,"), comm.calls()[i],
             concat("reduce_scatter of ", chain.buckets[i].numel, " elements"));
    }
  }

  const MakeSharder& attempt_;
};

}  // namespace

std::vector<std::string> grade(const MakeSharder& attempt, Communicator& comm) {
  install_memory_ledger();
  Grade grade(attempt, comm);
  grade.names_what_is_unused();
  grade.leaves_unarmed_backwards_alone();
  grade.starts_in_plan_order();
  grade.sums_of_several_microbatches();
  grade.overlaps_in_little_memory();
  return grade.faults();
}

}  // namespace ladder::step6
