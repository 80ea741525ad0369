#include "step6_zero2/exercise/grader.hpp"

#include <algorithm>

#include "common/core/memory_ledger.hpp"
#include "common/testing/examination.hpp"
#include "common/testing/hook_watch.hpp"
#include "common/testing/recording_communicator.hpp"
#include "step6_zero2/exercise/grade_refusals.hpp"
#include "step6_zero2/exercise/graded_model.hpp"
#include "step6_zero2/exercise/uninitialized_memory.hpp"
#include "step6_zero2/sharder_cost.hpp"

namespace ladder::step6 {
namespace {

constexpr int kNumUnits = GradedModel::kNumUnits;

class Grade : public Examination {
 public:
  Grade(const MakeSharder& attempt, Communicator& comm) : Examination(comm), attempt_(attempt) {}

  // The least that works. True if it does: what does not get that far fails everywhere else as
  // well.
  bool makes_a_step() {
    examine_sharder("one step of one microbatch", [this](RecordingCommunicator& comm) {
      const GradedModel model(comm.rank(), comm.size());
      const SharderAttempt sharder = make(model, comm);
      sharder.arm(1);
      model.backward(kForward, 0);
      try {
        sharder.wait();
      } catch (const Disagreement&) {
        throw;
      } catch (const std::exception& error) {
        return fault(
            concat("wait() throws although every trainable parameter has its gradient "
                   "('unit1.fixed' and 'ice.rock' are frozen and get none): ",
                   error.what()));
      }
      const int num_left = comm.recording().num_on_their_way();
      if (num_left > 0)
        fault(concat("wait() returns while ", num_left, " reduce_scatters are still on their way"));
    });
    return faults().empty();
  }

  // Two steps of three microbatches: numbers to the bit, bytes to the byte.
  void sums_of_several_microbatches() {
    examine_sharder("two steps of three microbatches", [this](RecordingCommunicator& comm) {
      const GradedModel model(comm.rank(), comm.size());
      const UninitializedIsNan guard;
      const SharderAttempt sharder = make(model, comm);
      for (int step = 1; step <= 2; ++step) {
        const WorkCounts before = comm.recording();
        const std::int64_t bytes_before = comm.traffic().bytes_sent();
        sharder.grad_shard.zero_();
        sharder.arm(3);
        for (std::int64_t j = 0; j < 3; ++j) model.backward(kForward, j);
        sharder.wait();
        const std::string where = concat("step ", step, " of three microbatches");
        expect("the gradient shard after " + where, sharder.grad_shard, model.wanted(3));
        expect("the number of reduce_scatters of " + where,
               comm.recording().num_started - before.num_started, 3 * kNumUnits);
        expect("the number of bytes sent by " + where, comm.traffic().bytes_sent() - bytes_before,
               3 * sharder_traffic(model.plan.layout, comm.size(), comm.rank()).bytes_sent());
      }
    });
  }

  // A unit must leave with this rank's whole gradient in it, of all its tensors.
  void units_leave_whole() {
    examine_sharder("what is in a unit when it leaves", [this](RecordingCommunicator& comm) {
      comm.keep_contents();
      const std::vector<StartedOperation>& started = comm.recording().started;
      const GradedModel model(comm.rank(), comm.size());
      const SharderAttempt sharder = make(model, comm);
      sharder.arm(1);
      model.backward(kForward, 0);
      sharder.wait();
      for (std::size_t b = 0; b < std::min(model.buckets.size(), started.size()); ++b) {
        const GradientBucket& unit = model.buckets[b];
        if (started[b].numel != unit.numel) continue;  // of another check
        for (const std::int64_t t : unit.tensors) {
          const FlatTensor& place = model.place(static_cast<std::size_t>(t));
          expect(
              concat("this rank's gradient of '", place.name, "', at the moment when its unit ",
                     "leaves with it,"),
              started[b].contents.narrow(0, place.start - unit.start, place.numel),
              at::ones({place.numel}) * model.share(comm.rank(), 0, static_cast<std::size_t>(t)));
        }
      }
    });
  }

  // When the very last gradient is computed, all units but its own have left, and the memory of all
  // but two is free again.
  void overlaps_in_little_memory() {
    examine_sharder("overlap and memory", [this](RecordingCommunicator& comm) {
      const GradedModel model(comm.rank(), comm.size());
      const std::int64_t gradients_before = read_memory().live(MemoryCategory::kGradients);
      const SharderAttempt sharder = make(model, comm);
      std::int64_t total_at_last = 0;
      model.leaf(0).register_hook(
          [&](const at::Tensor& /*grad*/) { total_at_last = read_memory().total_live_bytes; });
      HookWatch hooks(comm.recording());
      for (const std::size_t unit : kForward) {
        for (const std::size_t t : model.tensors_of(unit))
          hooks.watch(model.leaf(t), model.place(t).name);
      }
      const std::int64_t total_before = read_memory().total_live_bytes;
      reset_memory_peaks();
      sharder.arm(2);
      for (std::int64_t j = 0; j < 2; ++j) model.backward(kForward, j);
      const WorkCounts at_last = hooks.moments().back().counts;
      const std::string idle_hooks = hooks.describe_idle_hooks();
      sharder.wait();
      const MemoryReading memory = read_memory();

      expect("the number of reduce_scatters that have left before the last gradient is computed",
             at_last.num_started, 2 * kNumUnits - 1);
      expect("the number of reduce_scatters on their way when the last gradient is computed",
             at_last.num_on_their_way(), 1);
      if (!idle_hooks.empty()) fault(idle_hooks);

      const std::int64_t shard_bytes = 4 * model.plan.numel;
      expect("the most bytes of gradients (MemoryCategory::kGradients) that two microbatches hold",
             memory.peak(MemoryCategory::kGradients) - gradients_before,
             shard_bytes + gradient_bytes_in_flight(model.plan.layout, 2));
      expect("the number of bytes of gradients that are left after wait()",
             memory.live(MemoryCategory::kGradients) - gradients_before, shard_bytes);
      // Unit 0 fills, unit 1 is on its way with the transport's scratch; and the graph's numbers.
      const auto bytes = [&](std::size_t unit) { return 4 * model.plan.layout.units[unit].numel; };
      const std::int64_t bound = bytes(0) + 2 * bytes(1) + 2048;
      if (total_at_last - total_before > bound) {
        fault(concat("the number of bytes held when the last gradient is computed is ",
                     total_at_last - total_before, ", more than ", bound,
                     ": do the .grad stay, or buffers of units that have left?"));
      }
    });
  }

  // Where every sum comes at once, a sharder could hold less. But then memory would depend on
  // timing.
  void holds_the_same_on_a_fast_network() {
    examine_sharder("memory on a fast network", [this](RecordingCommunicator& comm) {
      comm.set_network(Network::kInstant);
      const GradedModel model(comm.rank(), comm.size());
      const SharderAttempt sharder = make(model, comm);
      const std::int64_t before = read_memory().live(MemoryCategory::kGradients);
      reset_memory_peaks();
      sharder.arm(1);
      model.backward(kForward, 0);
      sharder.wait();
      expect(
          "the most bytes of full gradients where test() is true at once (their buffers stay "
          "until the next unit leaves, or wait())",
          read_memory().peak(MemoryCategory::kGradients) - before,
          gradient_bytes_in_flight(model.plan.layout, 1));
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

 private:
  template <class Part>
  void examine_sharder(const std::string& what, Part part) {
    examine<RecordingCommunicator>(what, [&](RecordingCommunicator& comm) {
      comm.set_network(Network::kSlow);
      part(comm);
    });
  }

  SharderAttempt make(const GradedModel& model, Communicator& comm) const {
    return attempt_(model.plan, model.flat.leaves(), comm);
  }

  void expect_plan_order(RecordingCommunicator& comm, const Order& order) {
    const GradedModel model(comm.rank(), comm.size());
    const SharderAttempt sharder = make(model, comm);
    sharder.arm(1);
    model.backward(order, 0);
    sharder.wait();
    expect("the gradient shard, computed in another order than the plan's,", sharder.grad_shard,
           model.wanted(1));
    for (std::size_t i = 0; i < std::min(comm.calls().size(), model.buckets.size()); ++i) {
      expect(concat("collective ", i, ", counted from 0,"), comm.calls()[i],
             concat("reduce_scatter of ", model.buckets[i].numel, " elements"));
    }
  }

  const MakeSharder& attempt_;
};

}  // namespace

std::vector<std::string> grade(const MakeSharder& attempt, Communicator& comm) {
  install_memory_ledger();
  Grade grade(attempt, comm);
  if (!grade.makes_a_step()) return grade.faults();
  grade.units_leave_whole();
  grade.starts_in_plan_order();
  grade.sums_of_several_microbatches();
  grade.overlaps_in_little_memory();
  grade.holds_the_same_on_a_fast_network();
  GradeRefusals refusals(attempt, comm);
  refusals.ignores_backwards_that_nobody_armed();
  refusals.names_what_had_too_few_gradients();
  refusals.names_what_had_too_many_gradients();
  refusals.refuses_calls_out_of_turn();
  refusals.removes_its_hooks();
  std::vector<std::string> faults = grade.faults();
  faults.insert(faults.end(), refusals.faults().begin(), refusals.faults().end());
  return faults;
}

}  // namespace ladder::step6
