#include "step4_bucketed_ddp/exercise/grader.hpp"

#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>

#include <algorithm>

#include "common/core/memory_ledger.hpp"
#include "common/testing/examination.hpp"
#include "common/testing/hook_watch.hpp"
#include "common/testing/recording_communicator.hpp"
#include "step4_bucketed_ddp/exercise/grade_refusals.hpp"
#include "step4_bucketed_ddp/exercise/graded_model.hpp"

namespace ladder::step4 {
namespace {

constexpr std::int64_t kNumBuckets = GradedModel::kNumBuckets;

class Grade : public Examination {
 public:
  Grade(const MakeBucketer& attempt, Communicator& comm) : Examination(comm), attempt_(attempt) {}

  // The least that works. True if it does: what does not get that far fails everywhere else as
  // well.
  bool makes_a_step() {
    examine_bucketer("one step of one microbatch", [this](RecordingCommunicator& comm) {
      GradedModel model(comm.rank());
      const BucketerAttempt bucketer = make(model, comm);
      bucketer.arm(1);
      model.backward(kForward, 0);
      try {
        bucketer.wait();
      } catch (const Disagreement&) {
        throw;
      } catch (const std::exception& error) {
        return fault(
            concat("wait() throws although every trainable parameter has its gradient "
                   "('head.fixed' is frozen and gets none): ",
                   error.what()));
      }
      const int num_left = comm.recording().num_on_their_way();
      if (num_left > 0)
        fault(concat("wait() returns while ", num_left, " all-reduces are still on their way"));
    });
    return faults().empty();
  }

  // Two steps of three microbatches: sums to the bit, once per step, in the last backward.
  void sums_of_several_microbatches() {
    examine_bucketer("two steps of three microbatches", [this](RecordingCommunicator& comm) {
      GradedModel model(comm.rank());
      const BucketerAttempt bucketer = make(model, comm);
      for (int step = 1; step <= 2; ++step) {
        const int before = comm.recording().num_started;
        const auto num_left = [&] { return comm.recording().num_started - before; };
        model.grads.zero();
        bucketer.arm(3);
        model.backward(kForward, 0);
        model.backward(kForward, 1);
        expect(concat("the number of all-reduces that the first two of three backwards start in "
                      "step ",
                      step),
               num_left(), 0);
        model.backward(kForward, 2);
        expect(concat("the number of all-reduces that have left when the last backward of step ",
                      step, " has ended"),
               num_left(), static_cast<int>(kNumBuckets));
        bucketer.wait();
        expect(concat("the flat gradient after step ", step, " of three microbatches"),
               model.grads.flat(), model.wanted(3, comm.size()));
      }
    });
  }

  // A bucket must leave with this rank's whole gradient in it, of all its tensors.
  void buckets_leave_whole() {
    examine_bucketer("what is in a bucket when it leaves", [this](RecordingCommunicator& comm) {
      comm.keep_contents();
      GradedModel model(comm.rank());
      const BucketerAttempt bucketer = make(model, comm);
      bucketer.arm(1);
      model.backward(kForward, 0);
      bucketer.wait();
      const std::vector<GradientBucket> plan = model.plan();
      const std::vector<StartedOperation>& started = comm.recording().started;
      const at::Tensor own = model.own(1);
      for (std::size_t b = 0; b < std::min(plan.size(), started.size()); ++b) {
        for (const std::int64_t t : plan[b].tensors) {
          const FlatTensor& place = model.flat.layout().tensors[static_cast<std::size_t>(t)];
          const std::int64_t start = place.start - plan[b].start;
          if (start + place.numel > started[b].numel) continue;  // of another check
          expect(concat("this rank's gradient of '", place.name, "', at the moment when bucket ", b,
                        " leaves with it,"),
                 started[b].contents.flatten().narrow(0, start, place.numel),
                 own.narrow(0, place.start, place.numel));
        }
      }
    });
  }

  // The network is slow: what has left stays on its way until somebody waits. The gradient of
  // 'tokens' comes last: all buckets but its own have left by then, and none was waited for.
  void overlaps() {
    examine_bucketer("overlap", [this](RecordingCommunicator& comm) {
      GradedModel model(comm.rank());
      const BucketerAttempt bucketer = make(model, comm);
      HookWatch hooks(comm.recording());
      for (const std::int64_t t : kForward) hooks.watch(model.tensor(t), model.name(t));
      bucketer.arm(1);
      model.backward(kForward, 0);
      expect("the number of all-reduces that have left before the last gradient was computed",
             hooks.moments().back().counts.num_started, static_cast<int>(kNumBuckets - 1));
      expect("the number of all-reduces that backward waits for, which hold it up,",
             comm.recording().num_waited_for, 0);
      const std::string idle_hooks = hooks.describe_idle_hooks();
      if (!idle_hooks.empty()) fault(idle_hooks);
      bucketer.wait();
    });
  }

  // Autograd finishes in another order than the plan's: on all ranks, then on every second one.
  void starts_in_plan_order() {
    examine_bucketer("another order than the plan's",
                     [this](RecordingCommunicator& comm) { expect_plan_order(comm, kMixed); });
    examine_bucketer("ranks that finish in different orders", [this](RecordingCommunicator& comm) {
      expect_plan_order(comm, comm.rank() % 2 == 0 ? kMixed : kForward);
    });
  }

  // Whatever the transport may need: the other ranks' pieces of this rank's part of each bucket.
  void holds_no_copy() {
    examine_bucketer("memory", [this](RecordingCommunicator& comm) {
      GradedModel model(comm.rank());
      std::int64_t scratch = 0;
      for (const GradientBucket& bucket : model.plan())
        scratch += 4 * (comm.size() - 1) * ((bucket.numel + comm.size() - 1) / comm.size());
      const std::int64_t before = read_memory().total_live_bytes;
      const auto held = [&] { return read_memory().total_live_bytes - before; };
      const BucketerAttempt bucketer = make(model, comm);
      bucketer.arm(1);
      expect("the number of bytes of tensors that an armed bucketer holds", held(),
             std::int64_t{0});
      model.backward(kForward, 0);
      if (held() > scratch) {
        fault(concat("the number of bytes of tensors held with all buckets on their way is ",
                     held(), ", more than the transport's ", scratch,
                     ": is there a copy of the gradients?"));
      }
      bucketer.wait();
      expect("the number of bytes of tensors held after wait()", held(), std::int64_t{0});
    });
  }

  // What step 5 relies on.
  void reduces_as_it_is_told() {
    examine_bucketer("another reduction than the all-reduce", [this](RecordingCommunicator& comm) {
      GradedModel model(comm.rank());
      std::int64_t num_calls = 0;
      const BucketerAttempt bucketer = attempt_(model.grads, model.plan(), comm,
                                                [&](Communicator& to, const at::Tensor& bucket) {
                                                  ++num_calls;
                                                  return to.all_reduce(bucket);
                                                });
      bucketer.arm(1);
      model.backward(kForward, 0);
      bucketer.wait();
      expect("the number of buckets that start_reduction is called for", num_calls, kNumBuckets);
    });
  }

 private:
  template <class Part>
  void examine_bucketer(const std::string& what, Part part) {
    examine<RecordingCommunicator>(what, [&](RecordingCommunicator& comm) {
      comm.set_network(Network::kSlow);
      part(comm);
    });
  }
  BucketerAttempt make(GradedModel& model, Communicator& comm) const {
    return attempt_(model.grads, model.plan(), comm, start_all_reduce);
  }

  void expect_plan_order(RecordingCommunicator& comm, const Order& order) {
    GradedModel model(comm.rank());
    const std::vector<GradientBucket> plan = model.plan();
    const BucketerAttempt bucketer = make(model, comm);
    bucketer.arm(1);
    model.backward(order, 0);
    bucketer.wait();
    expect("the flat gradient, computed in another order than the plan's,", model.grads.flat(),
           model.wanted(1, comm.size()));
    const std::vector<StartedOperation>& started = comm.recording().started;
    const at::Tensor& flat = model.grads.flat();
    for (std::size_t i = 0; i < std::min(started.size(), plan.size()); ++i) {
      if (started[i].storage != flat.storage().unsafeGetStorageImpl())
        return fault("a bucket is a copy: it must be a range of the flat gradient");
      expect(concat("the place in the flat gradient that all-reduce ", i, " begins at"),
             static_cast<const float*>(started[i].data) - flat.const_data_ptr<float>(),
             plan[i].start);
      expect(concat("the number of elements of all-reduce ", i), started[i].numel, plan[i].numel);
    }
  }

  const MakeBucketer& attempt_;
};

}  // namespace

std::vector<std::string> grade(const MakeBucketer& attempt, Communicator& comm) {
  install_memory_ledger();
  Grade grade(attempt, comm);
  if (!grade.makes_a_step()) return grade.faults();
  grade.buckets_leave_whole();
  grade.starts_in_plan_order();
  grade.sums_of_several_microbatches();
  grade.overlaps();
  grade.holds_no_copy();
  grade.reduces_as_it_is_told();
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

}  // namespace ladder::step4
