// What step 4's bucketer and step 6's sharder have in common: what arm() and wait() promise to
// refuse, in which order they send, and that two of them know nothing of each other.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "common/comm/forwarding_communicator.hpp"
#include "common/core/check.hpp"
#include "common/testing/recording_communicator.hpp"
#include "step4_bucketed_ddp/bucket_plan.hpp"

namespace ladder {

// A rank whose operations are done at once, without the others: nobody waits for what an error keeps
// from leaving.
class RankAlone final : public ForwardingCommunicator {
 public:
  using ForwardingCommunicator::ForwardingCommunicator;
  WorkPtr start(const Operation& /*operation*/) override { return std::make_unique<DoneWork>(); }
};

// "" if what has been started are buckets of the plan, in its order. what: "all-reduces".
inline std::string describe_order(const std::string& what,
                                  const std::vector<StartedOperation>& started,
                                  const std::vector<GradientBucket>& plan) {
  std::vector<std::int64_t> found, wanted;
  for (const StartedOperation& operation : started) found.push_back(operation.numel);
  for (const GradientBucket& bucket : plan) wanted.push_back(bucket.numel);
  wanted.resize(std::min(found.size(), wanted.size()));
  if (found == wanted) return "";
  const auto text = [](const std::vector<std::int64_t>& numels) {
    std::string all;
    for (const std::int64_t numel : numels) all += concat(all.empty() ? "" : ", ", numel);
    return all;
  };
  return concat("the ", what, " leave with ", text(found), " elements; the plan's order is ",
                text(wanted),
                std::is_permutation(found.begin(), found.end(), wanted.begin(), wanted.end())
                    ? ": what is ready too early must wait for those before it"
                    : "");
}

// A step of `other` within a step of `one`, of two backwards over `all` each.
template <class Subject, class Model>
void step_within_a_step(Subject& one, const Model& ones_model, Subject& other,
                        const Model& others_model, const std::vector<std::size_t>& all) {
  one.arm(2);
  ones_model.backward(all);
  other.arm(2);
  others_model.backward(all);
  others_model.backward(all);
  other.wait();
  ones_model.backward(all);
  one.wait();
}

// What a loop does with a bucketer or a sharder, and with its model. `order`: the tensors that
// backward goes over.
template <class Subject, class Model>
struct Acts {
  using Act = std::function<void(Subject& subject, const Model& model)>;
  static Act arm(std::int64_t count) {
    return [count](Subject& subject, const Model& /*model*/) { subject.arm(count); };
  }
  static Act backward(const std::vector<std::size_t>& order) {
    return [order](Subject& /*subject*/, const Model& model) { model.backward(order); };
  }
  static Act wait() {
    return [](Subject& subject, const Model& /*model*/) { subject.wait(); };
  }
};

// `checks` has Loop, its Acts, and refuses(what, words, acts): one of them must throw a CheckError
// with these words and the rank. `all`: all that are trained; the last one is `first_again`, which
// a second backward adds to first. `incomplete`: all but `missing`.
template <class Checks>
void refuses_wrong_counts(Checks& checks, const std::vector<std::size_t>& all,
                          const std::string& first_again,
                          const std::vector<std::size_t>& incomplete, const std::string& missing) {
  const auto arm = [](std::int64_t count) { return Checks::Loop::arm(count); };
  const auto backward = Checks::Loop::backward(all), part = Checks::Loop::backward(incomplete),
             wait = Checks::Loop::wait();
  const std::vector<std::string> names_it = {missing, "of 2 gradients"};
  checks.refuses(concat("wait() after two backwards, the first without '", missing, "',"), names_it,
                 {arm(2), part, backward, wait});
  checks.refuses(concat("wait() after two backwards, the second without '", missing, "',"),
                 names_it, {arm(2), backward, part, wait});
  checks.refuses("wait() after one backward of 4294967297", {"of 4294967297 gradients"},
                 {arm((std::int64_t{1} << 32) + 1), backward, wait});
  checks.refuses("a second backward after arm(1)", {first_again}, {arm(1), backward, backward});
  checks.refuses("wait() without arm()", {}, {wait});
  checks.refuses("arm(0)", {}, {arm(0)});
  checks.refuses("arm(-1)", {}, {arm(-1)});
  checks.refuses("arm() after arm()", {}, {arm(1), arm(1)});
  checks.refuses("arm() after a whole backward, without wait(),", {}, {arm(1), backward, arm(1)});
}

}  // namespace ladder
