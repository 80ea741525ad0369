// What step 4's bucketer and step 6's sharder have in common: what arm() and wait() promise to
// refuse, in which order they send, and that two of them know nothing of each other.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
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

// `checks` has refuses(what, words, call): call(subject, model) must throw a CheckError with these
// words and the rank. A model goes backward over tensors in an order. `all`: all that are trained;
// the last one is `first_again`, which a second backward adds to first. `incomplete`: all but
// `missing`.
template <class Checks>
void refuses_wrong_counts(Checks& checks, const std::vector<std::size_t>& all,
                          const std::string& first_again,
                          const std::vector<std::size_t>& incomplete, const std::string& missing) {
  for (const bool is_first : {true, false}) {
    checks.refuses(concat("wait() after two backwards, the ", is_first ? "first" : "second",
                          " without '", missing, "',"),
                   {missing, "of 2 gradients"}, [&](auto& subject, const auto& model) {
                     subject.arm(2);
                     model.backward(is_first ? incomplete : all);
                     model.backward(is_first ? all : incomplete);
                     subject.wait();
                   });
  }
  checks.refuses("wait() after one backward of 4294967297", {"of 4294967297 gradients"},
                 [&](auto& subject, const auto& model) {
                   subject.arm((std::int64_t{1} << 32) + 1);
                   model.backward(all);
                   subject.wait();
                 });
  checks.refuses("a second backward after arm(1)", {first_again},
                 [&](auto& subject, const auto& model) {
                   subject.arm(1);
                   model.backward(all);
                   model.backward(all);
                 });
  checks.refuses("wait() without arm()", {},
                 [](auto& subject, const auto& /*model*/) { subject.wait(); });
  for (const int count : {0, -1}) {
    checks.refuses(concat("arm(", count, ")"), {},
                   [count](auto& subject, const auto& /*model*/) { subject.arm(count); });
  }
  checks.refuses("arm() after arm()", {}, [](auto& subject, const auto& /*model*/) {
    subject.arm(1);
    subject.arm(1);
  });
  checks.refuses("arm() after a whole backward, without wait(),", {},
                 [&](auto& subject, const auto& model) {
                   subject.arm(1);
                   model.backward(all);
                   subject.arm(1);
                 });
}

}  // namespace ladder
