// What the exercises of steps 1, 4 and 6 have in common: what arm() and wait() promise.
//
// A Setup is a model, `flat`, and what sums its gradients. It is made with a communicator, and does
// what a loop does: arm(count), backward(order), wait().
#pragma once

#include <ATen/TensorOperators.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "common/comm/forwarding_communicator.hpp"
#include "common/core/listed.hpp"
#include "common/optim/flat_model.hpp"
#include "common/testing/examination.hpp"
#include "common/testing/hook_watch.hpp"
#include "common/testing/recording_communicator.hpp"

namespace ladder {

using Order = std::vector<std::size_t>;  // of leaves; backward goes from the last to the first

// A loss of which each element of these leaves has a gradient of 1.
inline at::Tensor sum_of(const FlatModel& model, const Order& order) {
  at::Tensor loss = at::zeros({});
  for (const std::size_t leaf : order) loss = loss + model.leaves()[leaf].tensor.sum();
  return loss;
}

// A rank whose operations are done at once, without the others: nobody waits for what an error keeps
// from leaving.
class RankAlone final : public ForwardingCommunicator {
 public:
  using ForwardingCommunicator::ForwardingCommunicator;
  WorkPtr start(const Operation& /*operation*/) override { return std::make_unique<DoneWork>(); }
};

// `all`: the order of all leaves that are trained. `sums`: what a rank starts, as "all-reduces".
template <class Setup>
class ArmAndWaitChecks : public Examination {
 public:
  using Examination::Examination;

  using Act = std::function<void(Setup& setup)>;
  static Act arm(std::int64_t count) {
    return [count](Setup& setup) { setup.arm(count); };
  }
  static Act backward(const Order& order) {
    return [order](Setup& setup) { setup.backward(order); };
  }
  static Act wait() {
    return [](Setup& setup) { setup.wait(); };
  }

  // One of the acts must throw a CheckError with these words and the rank.
  void refuses(const std::string& what, std::vector<std::string> words,
               const std::vector<Act>& acts) {
    words.push_back(concat("rank ", comm_.rank()));
    examine(what, [&](Communicator& comm) {
      RankAlone alone(comm);
      Setup setup(alone);
      expect_error(what, words, [&] {
        for (const Act& act : acts) act(setup);
      });
    });
  }

  void refuses_wrong_counts(const Order& all) {
    refuses("wait() after one backward of 4294967297", {},
            {arm((std::int64_t{1} << 32) + 1), backward(all), wait()});
    refuses("wait() without arm()", {}, {wait()});
    refuses("arm(0)", {}, {arm(0)});
    refuses("arm(-1)", {}, {arm(-1)});
    refuses("arm() after arm()", {}, {arm(1), arm(1)});
    refuses("arm() after a whole backward, without wait(),", {}, {arm(1), backward(all), arm(1)});
    refuses("a second wait()", {}, {arm(1), backward(all), wait(), wait()});
  }

  // `incomplete` is without the leaf `missing`. A second backward adds to `first_again` first.
  void refuses_missing_gradients(const Order& all, const std::string& first_again,
                                 const Order& incomplete, const std::string& missing) {
    const std::vector<std::string> names_it = {missing, "of 2 gradients"};
    refuses(concat("wait() after two backwards, the first without '", missing, "',"), names_it,
            {arm(2), backward(incomplete), backward(all), wait()});
    refuses(concat("wait() after two backwards, the second without '", missing, "',"), names_it,
            {arm(2), backward(all), backward(incomplete), wait()});
    refuses("a second backward after arm(1)", {first_again},
            {arm(1), backward(all), backward(all)});
  }

  // A step of one within a step of another, of two backwards each: neither knows of the other.
  void keeps_apart(const std::string& what, const Order& all, std::size_t num_sums,
                   const std::function<void(const std::string& whose, const Setup&)>& expect_sums) {
    examine(what, [&](LockstepCommunicator& comm) {
      Setup one(comm), other(comm);
      one.arm(2);
      one.backward(all);
      other.arm(2);
      other.backward(all);
      other.backward(all);
      other.wait();
      one.backward(all);
      one.wait();
      expect(what + ": the number of sums of both", comm.calls().size(), num_sums);
      expect_sums(what + ": the first one's ", one);
      expect_sums(what + ": the other's ", other);
    });
  }

  void ignores_backwards_that_nobody_armed(const std::string& sums, const Order& all) {
    examine("backwards before arm() and after wait()", [&](LockstepCommunicator& comm) {
      Setup setup(comm), unarmed(comm);
      const auto expect_local = [&](const std::string& when, Setup& of) {
        const std::size_t before = comm.calls().size();
        of.backward(all);
        expect(concat("the number of ", sums, " that a backward ", when, " starts"),
               comm.calls().size() - before, std::size_t{0});
        if (!of.flat.leaves()[all.front()].tensor.grad().defined())
          fault(concat("a backward ", when, " leaves no .grad, which is autograd's then"));
      };
      expect_local("before arm()", unarmed);
      setup.arm(1);
      setup.backward(all);
      setup.wait();
      expect_local("after wait()", setup);
    });
  }

  // What a backward on a slow network has shown when it has ended, and what is wrong with it: "" if
  // nothing is.
  struct Overlap {
    const Recording& seen;
    WorkCounts at_last;      // what had happened when the last gradient was computed
    std::string idle_hooks;  // hooks that have not advanced what is on its way
    // That the Setup's buckets() have left in another order than theirs, so far.
    std::function<std::string()> wrong_order;
    // Before each gradient is added, in the order of backward, and at its end.
    const std::vector<HookWatch::Moment>& moments;
  };

  // A backward on a slow network: what has left stays on its way until somebody waits for it. Calls
  // look(setup, overlap) when it has ended.
  template <class Look>
  void overlaps(const std::string& what, const std::string& sums, const Order& order, Look look) {
    examine<RecordingCommunicator>(what, [&](RecordingCommunicator& comm) {
      Setup setup(comm);
      comm.set_network(Network::kInstant);  // in the step before, which leaves its traces
      setup.arm(1);
      setup.backward(order);
      setup.wait();
      comm.forget();
      comm.set_network(Network::kSlow);
      HookWatch hooks(comm.recording());
      for (const std::size_t i : order) {
        const NamedTensor& leaf = setup.flat.leaves()[i];
        hooks.watch(leaf.tensor, leaf.name);
      }
      setup.arm(1);
      setup.backward(order);
      const Recording& seen = comm.recording();
      look(setup, Overlap{seen, hooks.moments().back().counts, hooks.describe_idle_hooks(),
                          [&] { return wrong_order(sums, seen.started, setup.buckets()); },
                          hooks.moments()});
    });
  }

 private:
  template <class Plan>
  static std::string wrong_order(const std::string& sums,
                                 const std::vector<StartedOperation>& started, const Plan& plan) {
    std::vector<std::int64_t> found, wanted;
    for (const StartedOperation& operation : started) found.push_back(operation.numel);
    for (const auto& bucket : plan) wanted.push_back(bucket.numel);
    wanted.resize(std::min(found.size(), wanted.size()));
    if (found == wanted) return "";
    return concat("the ", sums, " leave with ", listed(found), " elements; the plan's order is ",
                  listed(wanted),
                  std::is_permutation(found.begin(), found.end(), wanted.begin(), wanted.end())
                      ? ": what is ready too early must wait for those before it"
                      : "");
  }
};

}  // namespace ladder
