#include "step4_bucketed_ddp/exercise/grader.hpp"

#include <cmath>

#include "common/comm/self_communicator.hpp"
#include "common/core/check.hpp"
#include "step4_bucketed_ddp/exercise/recording_communicator.hpp"

namespace ladder::step4 {
namespace {

constexpr std::int64_t kNumTensors = 5;
constexpr std::int64_t kNumel = 40;

// Five tensors of 40 elements, five buckets of one tensor each. The loss is linear, so that each
// rank's gradients are numbers that every rank can work out. Autograd meets the tensors in any order
// that is asked for.
struct Chain {
  explicit Chain(Communicator& the_comm) : comm(the_comm) {}

  // What rank r's microbatch j adds to each element of tensor t. Sums of these depend on the order.
  static float share(std::int64_t rank, std::int64_t microbatch, std::int64_t tensor) {
    const float sign = (rank + microbatch) % 2 == 0 ? 1.0F : -1.0F;
    return sign * (1.0F + 0.1F * static_cast<float>(tensor)) *
           std::pow(37.0F, static_cast<float>((rank * 2 + microbatch) % 5) - 2.0F);
  }

  // Backward adds to the gradients from the last tensor of `order` to the first.
  void backward(const std::vector<std::int64_t>& order, std::int64_t microbatch) {
    at::Tensor x = at::zeros({kNumel});
    for (const std::int64_t t : order) x = x + tensor(t) * share(comm.rank(), microbatch, t);
    x.sum().backward();
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
      all.narrow(0, place(t).start, kNumel).fill_(sum);
    }
    return all;
  }

  at::Tensor tensor(std::int64_t t) const {
    return flat.leaves()[static_cast<std::size_t>(t)].tensor;
  }
  const FlatTensor& place(std::int64_t t) const {
    return flat.layout().tensors[static_cast<std::size_t>(t)];
  }
  std::vector<GradientBucket> plan() const {
    return plan_buckets(flat.layout(), 4 * place(0).padded_numel);
  }

  static std::vector<Unit> units() {
    std::vector<Unit> list;
    for (std::int64_t t = 0; t < kNumTensors; ++t) {
      list.push_back(
          {concat("unit", t), {{concat("tensor", t), at::ones({kNumel}).set_requires_grad(true)}}});
    }
    return list;
  }

  Communicator& comm;
  FlatModel flat = FlatModel(units());
};

std::vector<std::int64_t> forward_order() {
  return {0, 1, 2, 3, 4};
}

class Grade {
 public:
  Grade(const MakeBucketer& attempt, Communicator& comm) : attempt_(attempt), comm_(comm) {}

  // Two steps of three microbatches: sums to the bit, once per step, in the last backward.
  void sums_of_several_microbatches() {
    Chain chain(comm_);
    RecordingCommunicator spy(comm_);
    const BucketerAttempt bucketer = attempt_(chain.flat, chain.plan(), spy);
    for (int step = 1; step <= 2; ++step) {
      const auto started = [&] { return spy.recording().all_reduced.size(); };
      const std::size_t before = started();
      chain.flat.zero_grad();
      bucketer.arm(3);
      for (std::int64_t j = 0; j < 3; ++j) {
        if (j == 2) {
          expect(concat("all-reduces started by the first two of three backwards in step ", step),
                 started() - before, std::size_t{0});
        }
        chain.backward(forward_order(), j);
      }
      expect(concat("all-reduces started when the last backward of step ", step, " has ended"),
             started() - before, static_cast<std::size_t>(kNumTensors));
      bucketer.wait();
      expect_gradients(concat("step ", step, " of three microbatches"), chain.flat.grads(),
                       chain.wanted(3, comm_.size()));
    }
  }

  // The gradient of the first tensor comes last: by then the other buckets are on their way, and
  // the hooks have moved them on without waiting for them.
  void overlaps() {
    Chain chain(comm_);
    RecordingCommunicator spy(comm_);
    const BucketerAttempt bucketer = attempt_(chain.flat, chain.plan(), spy);
    std::size_t num_started = 0;
    chain.tensor(0).register_hook(
        [&](const at::Tensor& /*grad*/) { num_started = spy.recording().all_reduced.size(); });
    bucketer.arm(1);
    chain.backward(forward_order(), 0);
    expect("all-reduces started before the last gradient was computed", num_started,
           static_cast<std::size_t>(kNumTensors - 1));
    expect("waits inside backward, which hold it up", spy.recording().num_waits, 0);
    if (spy.recording().num_tests == 0) {
      faults_.emplace_back("no hook calls test(): MPI makes no progress by itself");
    }
    bucketer.wait();
    expect_gradients("one microbatch", chain.flat.grads(), chain.wanted(1, comm_.size()));
  }

  // Autograd finishes in another order on every second rank. All start in the plan's.
  void starts_in_plan_order() {
    Chain chain(comm_);
    RecordingCommunicator spy(comm_);
    const std::vector<GradientBucket> plan = chain.plan();
    const BucketerAttempt bucketer = attempt_(chain.flat, plan, spy);
    bucketer.arm(1);
    chain.backward(comm_.rank() % 2 == 0 ? std::vector<std::int64_t>{3, 1, 4, 0, 2}
                                         : std::vector<std::int64_t>{4, 3, 2, 1, 0},
                   0);
    bucketer.wait();
    expect_gradients("ranks that finish in different orders", chain.flat.grads(),
                     chain.wanted(1, comm_.size()));
    const std::vector<at::Tensor>& started = spy.recording().all_reduced;
    const auto* const base = chain.flat.grads().const_data_ptr<float>();
    for (std::size_t i = 0; i < std::min(started.size(), plan.size()); ++i) {
      const std::int64_t place = started[i].const_data_ptr<float>() - base;
      if (place < 0 || place >= chain.flat.grads().numel()) {
        faults_.emplace_back("a bucket is a copy: it must be a range of the flat gradient");
        return;
      }
      expect(concat("the place in the flat gradient that all-reduce ", i, " begins at"), place,
             plan[i].start);
      expect(concat("the elements of all-reduce ", i), started[i].numel(), plan[i].numel);
    }
  }

  // A parameter without a gradient, seen from a world of its own, where nobody can be waited for.
  void names_what_is_unused() {
    SelfCommunicator alone;
    Chain chain(alone);
    const BucketerAttempt bucketer = attempt_(chain.flat, chain.plan(), alone);
    bucketer.arm(1);
    chain.backward({0, 1, 3, 4}, 0);
    try {
      bucketer.wait();
      faults_.emplace_back("a parameter without a gradient: wait() must throw CheckError");
    } catch (const CheckError& error) {
      const std::string message = error.what();
      if (message.find("tensor2") == std::string::npos) {
        faults_.push_back("the error of an unused parameter must name it: " + message);
      }
    }
  }

  void leaves_unarmed_backwards_alone() {
    Chain chain(comm_);
    RecordingCommunicator spy(comm_);
    const BucketerAttempt bucketer = attempt_(chain.flat, chain.plan(), spy);
    chain.backward(forward_order(), 0);
    expect("all-reduces of a backward without arm()", spy.recording().all_reduced.size(),
           std::size_t{0});
    expect_gradients("a backward without arm()", chain.flat.grads(),
                     chain.wanted(1, 1, comm_.rank()));
  }

  // An error that the attempt lets out is a fault, and the next check goes on with a new one.
  void run(const char* what, void (Grade::*check)()) {
    try {
      (this->*check)();
    } catch (const std::exception& error) {
      faults_.push_back(concat(what, ": throws \"", error.what(), "\""));
    }
  }

  std::vector<std::string> faults() { return std::move(faults_); }

 private:
  template <class Value>
  void expect(const std::string& what, Value found, Value wanted) {
    if (found != wanted) faults_.push_back(concat(what, ": ", found, ", wanted ", wanted));
  }
  void expect_gradients(const std::string& what, const at::Tensor& found,
                        const at::Tensor& wanted) {
    const auto different = found.ne(wanted).nonzero();
    if (different.numel() == 0) return;
    const auto i = different[0].item<std::int64_t>();
    faults_.push_back(concat("gradients of ", what, ": ", different.numel(),
                             " elements are wrong, the first is ", found[i].item<float>(),
                             " and should be ", wanted[i].item<float>()));
  }

  const MakeBucketer& attempt_;
  Communicator& comm_;
  std::vector<std::string> faults_;
};

}  // namespace

std::vector<std::string> grade(const MakeBucketer& attempt, Communicator& comm) {
  Grade grade(attempt, comm);
  grade.run("an unused parameter", &Grade::names_what_is_unused);  // alone: nobody is left waiting
  grade.run("a backward without arm()", &Grade::leaves_unarmed_backwards_alone);
  grade.run("ranks that finish in different orders", &Grade::starts_in_plan_order);
  grade.run("two steps of three microbatches", &Grade::sums_of_several_microbatches);
  grade.run("overlap", &Grade::overlaps);
  return grade.faults();
}

}  // namespace ladder::step4
