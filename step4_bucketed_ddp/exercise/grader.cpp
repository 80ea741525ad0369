#include "step4_bucketed_ddp/exercise/grader.hpp"

#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <cmath>

#include "common/comm/self_communicator.hpp"
#include "common/core/check.hpp"
#include "common/testing/examination.hpp"
#include "step4_bucketed_ddp/exercise/recording_communicator.hpp"

namespace ladder::step4 {
namespace {

constexpr std::int64_t kNumTensors = 5;

// Five tensors, a bucket each, no two of one length: who starts the wrong one sends the wrong number
// of elements. The loss is linear, so that each rank's gradients are numbers that every rank can
// work out. Autograd meets the tensors in any order that is asked for.
struct Chain {
  explicit Chain(int the_rank) : rank(the_rank) {}

  // What rank r's microbatch j adds to each element of tensor t: to tensor 0 a number that one can
  // add up in one's head, to the others numbers whose sum depends on the order.
  static float share(std::int64_t rank, std::int64_t microbatch, std::int64_t tensor) {
    if (tensor == 0) return static_cast<float>(rank + 1);
    const float sign = (rank + microbatch) % 2 == 0 ? 1.0F : -1.0F;
    return sign * (1.0F + 0.1F * static_cast<float>(tensor)) *
           std::pow(37.0F, static_cast<float>((rank * 2 + microbatch) % 5) - 2.0F);
  }

  // Backward adds to the gradients from the last tensor of `order` to the first.
  void backward(const std::vector<std::int64_t>& order, std::int64_t microbatch) {
    at::Tensor loss = at::zeros({});
    for (const std::int64_t t : order) loss = loss + (tensor(t) * share(rank, microbatch, t)).sum();
    loss.backward();
  }

  // The fold: microbatches of a rank in order, then the ranks.
  at::Tensor wanted(std::int64_t num_microbatches, int num_ranks, int first_rank = 0) const {
    at::Tensor all = at::zeros({flat.layout().numel});
    for (std::int64_t t = 0; t < kNumTensors; ++t) {
      float sum = 0;
      for (int r = first_rank; r < first_rank + num_ranks; ++r) {
        float own = 0;
        for (std::int64_t j = 0; j < num_microbatches; ++j) own += share(r, j, t);
        sum = r == first_rank ? own : sum + own;
      }
      const FlatTensor& place = flat.layout().tensors[static_cast<std::size_t>(t)];
      all.narrow(0, place.start, place.numel).fill_(sum);
    }
    return all;
  }

  at::Tensor tensor(std::int64_t t) const {
    return flat.leaves()[static_cast<std::size_t>(t)].tensor;
  }
  std::vector<GradientBucket> plan() const {
    return plan_buckets(flat.layout(), /*capacity_bytes=*/1);
  }

  static std::vector<Unit> units() {
    std::vector<Unit> list;
    for (std::int64_t t = 0; t < kNumTensors; ++t) {
      const at::Tensor tensor = at::ones({10 + t * kTensorAlignment}).set_requires_grad(true);
      list.push_back({concat("unit", t), {{concat("tensor", t), tensor}}});
    }
    return list;
  }

  int rank;
  FlatModel flat = FlatModel(units());
};

using Order = std::vector<std::int64_t>;
const Order kForward = {0, 1, 2, 3, 4};  // backward is in the plan's order
const Order kMixed = {3, 1, 4, 0, 2};

class Grade : public Examination {
 public:
  Grade(const MakeBucketer& attempt, Communicator& comm) : Examination(comm), attempt_(attempt) {}

  // Two steps of three microbatches: sums to the bit, once per step, in the last backward.
  void sums_of_several_microbatches() {
    examine_bucketer("two steps of three microbatches", [this](RecordingCommunicator& comm) {
      Chain chain(comm.rank());
      const BucketerAttempt bucketer = attempt_(chain.flat, chain.plan(), comm);
      for (int step = 1; step <= 2; ++step) {
        const std::int64_t before = num_started(comm);
        chain.flat.zero_grad();
        bucketer.arm(3);
        for (std::int64_t j = 0; j < 3; ++j) {
          if (j == 2)
            expect(concat("the number of all-reduces that the first two of three backwards start "
                          "in step ",
                          step),
                   num_started(comm) - before, std::int64_t{0});
          chain.backward(kForward, j);
        }
        expect(concat("the number of all-reduces that have left when the last backward of step ",
                      step, " has ended"),
               num_started(comm) - before, kNumTensors);
        bucketer.wait();
        expect(concat("the flat gradient after step ", step, " of three microbatches"),
               chain.flat.grads(), chain.wanted(3, comm.size()));
      }
    });
  }

  // The gradient of the first tensor comes last: by then the other buckets are on their way, and
  // the hooks have moved them on without waiting for them.
  void overlaps() {
    examine_bucketer("overlap", [this](RecordingCommunicator& comm) {
      Chain chain(comm.rank());
      const BucketerAttempt bucketer = attempt_(chain.flat, chain.plan(), comm);
      std::int64_t num_early = 0;
      chain.tensor(0).register_hook(
          [&](const at::Tensor& /*grad*/) { num_early = num_started(comm); });
      bucketer.arm(1);
      chain.backward(kForward, 0);
      expect("the number of all-reduces that have left before the last gradient was computed",
             num_early, kNumTensors - 1);
      expect("the number of all-reduces that backward waits for, which hold it up,",
             comm.recording().num_waited_for, 0);
      if (comm.recording().num_tests == 0)
        fault("no hook calls test(): MPI makes no progress by itself");
      bucketer.wait();
      expect("the number of all-reduces that were waited for when wait() returns",
             comm.recording().num_waited_for, static_cast<int>(kNumTensors));
      expect("the flat gradient after one microbatch", chain.flat.grads(),
             chain.wanted(1, comm.size()));
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

  // A parameter without a gradient, seen from a world of its own: nothing is left on its way.
  void names_what_is_unused() {
    examine_bucketer("an unused parameter", [this](RecordingCommunicator& /*comm*/) {
      SelfCommunicator alone;
      Chain chain(alone.rank());
      const BucketerAttempt bucketer = attempt_(chain.flat, chain.plan(), alone);
      bucketer.arm(1);
      chain.backward({0, 1, 3, 4}, 0);
      expect_error("'tensor2' got no gradient: wait()", {"tensor2"}, bucketer.wait);
    });
  }

  void leaves_unarmed_backwards_alone() {
    examine_bucketer("a backward without arm()", [this](RecordingCommunicator& comm) {
      Chain chain(comm.rank());
      const BucketerAttempt bucketer = attempt_(chain.flat, chain.plan(), comm);
      chain.backward(kForward, 0);
      expect("the number of all-reduces of a backward without arm()", num_started(comm),
             std::int64_t{0});
      expect("the flat gradient after a backward without arm()", chain.flat.grads(),
             chain.wanted(1, 1, comm.rank()));
    });
  }

 private:
  template <class Part>
  void examine_bucketer(const std::string& what, Part part) {
    examine<RecordingCommunicator>(what, part);
  }

  static std::int64_t num_started(const RecordingCommunicator& comm) {
    return static_cast<std::int64_t>(comm.recording().all_reduced.size());
  }

  void expect_plan_order(RecordingCommunicator& comm, const Order& order) {
    Chain chain(comm.rank());
    const std::vector<GradientBucket> plan = chain.plan();
    const BucketerAttempt bucketer = attempt_(chain.flat, plan, comm);
    bucketer.arm(1);
    chain.backward(order, 0);
    bucketer.wait();
    expect("the flat gradient, computed in another order than the plan's,", chain.flat.grads(),
           chain.wanted(1, comm.size()));
    const std::vector<at::Tensor>& started = comm.recording().all_reduced;
    const auto* const base = chain.flat.grads().const_data_ptr<float>();
    for (std::size_t i = 0; i < std::min(started.size(), plan.size()); ++i) {
      if (!started[i].is_alias_of(chain.flat.grads()))
        return fault("a bucket is a copy: it must be a range of the flat gradient");
      expect(concat("the place in the flat gradient that all-reduce ", i, " begins at"),
             started[i].const_data_ptr<float>() - base, plan[i].start);
      expect(concat("the number of elements of all-reduce ", i), started[i].numel(), plan[i].numel);
    }
  }

  const MakeBucketer& attempt_;
};

}  // namespace

std::vector<std::string> grade(const MakeBucketer& attempt, Communicator& comm) {
  Grade grade(attempt, comm);
  grade.names_what_is_unused();
  grade.leaves_unarmed_backwards_alone();
  grade.starts_in_plan_order();
  grade.sums_of_several_microbatches();
  grade.overlaps();
  return grade.faults();
}

}  // namespace ladder::step4
