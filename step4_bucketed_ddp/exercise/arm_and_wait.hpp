// What arm() and wait() promise to refuse, of step 4's bucketer and of step 6's sharder.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "common/core/check.hpp"
#include "common/testing/forwarding_communicator.hpp"

namespace ladder {

// A rank whose operations are done at once, without the others: nobody waits for what an error keeps
// from leaving.
class RankAlone final : public ForwardingCommunicator {
 public:
  using ForwardingCommunicator::ForwardingCommunicator;
  WorkPtr start(const Operation& /*operation*/) override { return std::make_unique<DoneWork>(); }
};

// `checks` has refuses(what, words, call): call(subject, model) must throw a CheckError with these
// words and the rank. A model goes backward over tensors in an order. `all`: all that are trained; the last one
// is `first_again`, which a second backward adds to first. `incomplete`: all but `missing`.
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
