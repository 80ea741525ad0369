// For the judge, part 2: finds what is still in memory although nobody needs it.
//
// Looks at a microbatch's input, at what autograd saves between, and at the gradient that the next
// stage has sent, each time when a later forward or backward of this stage begins. Keeps nothing
// alive itself.
#pragma once

#include <c10/core/Storage.h>

#include <algorithm>
#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "common/core/check.hpp"
#include "step8_pipeline_ga/exercise/judged_pipeline.hpp"
#include "step8_pipeline_ga/schedule/pipeline_schedule.hpp"

namespace ladder::step8 {

class ActivationWatch {
 public:
  // `computations`: this stage's, in order. on_fault is called once at most.
  ActivationWatch(std::vector<Action> computations,
                  std::function<void(const std::string&)> on_fault)
      : computations_(std::move(computations)), on_fault_(std::move(on_fault)) {}

  // Lifetime: as long as the model runs.
  void watch(JudgedPipeline& model) {
    model.on_begin = [this](int chunk) {
      place_ = {chunk, num_forwards_[chunk]++};
      begin(place_, /*is_forward=*/true);
    };
    model.on_end = [this](const at::Tensor& x, const at::Tensor& y, const at::Tensor& z) {
      keep("what autograd has saved", place_, y);
      keep("the input", place_, x);
      z.register_hook([this, place = place_](const at::Tensor& /*gradient*/) {
        begin(place, /*is_forward=*/false);
      });
    };
  }

  // Keeps it until its chunk's backward is over, or its dgrad.
  void keep(const std::string& what, const Pass& place, const at::Tensor& tensor) {
    kept_.push_back(
        {what, find(place, /*is_forward=*/false), tensor.storage().getWeakStorageImpl()});
  }

  void finish() { look(computations_.size(), "the runner returns"); }

 private:
  struct Kept {
    std::string what;
    std::size_t last_use;  // index in computations_
    c10::weak_intrusive_ptr<c10::StorageImpl> storage;
  };

  // The forward of this place, or its backward or dgrad.
  std::size_t find(const Pass& place, bool is_forward) const {
    const auto found =
        std::find_if(computations_.begin(), computations_.end(), [&](const Action& action) {
          return Pass(action.chunk, action.microbatch) == place &&
                 (action.kind == ActionKind::kForward) == is_forward;
        });
    return static_cast<std::size_t>(found - computations_.begin());
  }
  void begin(const Pass& place, bool is_forward) {
    const std::size_t now = find(place, is_forward);
    if (now < computations_.size()) look(now, to_string(computations_[now]) + " begins");
  }
  void look(std::size_t now, const std::string& when) {
    std::erase_if(kept_, [](const Kept& kept) { return kept.storage.expired(); });
    for (const Kept& kept : kept_) {
      if (kept.last_use >= now || std::exchange(has_fault_, true)) continue;
      on_fault_(concat("when ", when, ", ", kept.what, " for ",
                       to_string(computations_[kept.last_use]),
                       " is still in memory: is it kept too long, or has another microbatch gone "
                       "backward instead?"));
    }
  }

  std::vector<Action> computations_;
  std::function<void(const std::string&)> on_fault_;
  std::map<int, std::int64_t> num_forwards_;  // begun, by chunk
  Pass place_;                                // of the forward that is running
  std::vector<Kept> kept_;
  bool has_fault_ = false;
};

}  // namespace ladder::step8
