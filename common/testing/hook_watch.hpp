// For the judge: checks whether the hooks that run in backward advance the operations in flight.
//
// Reads the counts just before each watched gradient is accumulated. Between two of these moments
// exactly one hook has run, that of the previous parameter.
//
// Lifetime: `counts` and this object must outlive the watched backward passes.
#pragma once

#include <ATen/core/Tensor.h>

#include <string>
#include <vector>

#include "common/core/check.hpp"
#include "common/testing/recording_communicator.hpp"

namespace ladder {

class HookWatch {
 public:
  struct Moment {
    std::string next_hook;  // the parameter's
    WorkCounts counts;
  };

  explicit HookWatch(const WorkCounts& counts) : counts_(counts) {}
  HookWatch(const HookWatch&) = delete;
  HookWatch& operator=(const HookWatch&) = delete;

  void watch(const at::Tensor& parameter, const std::string& name) {
    parameter.register_hook([this, name](const at::Tensor& /*grad*/) { note(name); });
  }
  void note(const std::string& next_hook) { moments_.push_back({next_hook, counts_}); }
  const std::vector<Moment>& moments() const { return moments_; }

  // Returns what is wrong, or "". Call this after backward has ended.
  std::string describe_idle_hooks() {
    note("");
    int num_hooks = 0, num_idle = 0;
    std::string first_idle;
    for (std::size_t i = 0; i + 1 < moments_.size(); ++i) {
      if (moments_[i].counts.num_on_their_way() == 0) continue;
      ++num_hooks;
      if (moments_[i + 1].counts.num_tests > moments_[i].counts.num_tests) continue;
      if (num_idle++ == 0) first_idle = moments_[i].next_hook;
    }
    if (num_idle == 0) return "";
    return concat(
        num_idle, " of ", num_hooks, " hooks that run while something is on its way call ",
        "no test(), the first that of '", first_idle, "': MPI makes no progress by itself");
  }

 private:
  const WorkCounts& counts_;
  std::vector<Moment> moments_;
};

}  // namespace ladder
