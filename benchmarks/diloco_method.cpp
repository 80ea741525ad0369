#include "benchmarks/diloco_method.hpp"

#include <ATen/ops/zeros_like.h>

#include <memory>
#include <optional>

#include "step4_bucketed_ddp/gradient_hooks.hpp"
#include "step9_diloco/averager.hpp"

namespace ladder {
namespace {

class DelayedAverage {
 public:
  DelayedAverage(Replica& replica, Communicator& comm, bool is_polled)
      : replica_(replica), averager_(comm), values_(at::zeros_like(replica.flat.params())) {
    if (is_polled) hooks_.emplace(replica.flat.leaves(), [this](auto) { averager_.poll(); });
  }
  void step() {
    averager_.start(values_);
    replica_.forward_and_backward(loss_of(replica_.model, kNextToken));
    averager_.finish();
  }
  void sum_alone() {
    averager_.start(values_);
    averager_.finish();
  }

 private:
  Replica& replica_;
  GroupAverager averager_;
  at::Tensor values_;
  std::optional<GradientHooks> hooks_;
};

}  // namespace

Method diloco_method(bool is_polled) {
  return {is_polled ? "step 9, delay 1" : "the same, never polled",
          [is_polled](Replica& replica, Communicator& comm) {
            const auto average = std::make_shared<DelayedAverage>(replica, comm, is_polled);
            return GradientSum{[average] { average->step(); }, [average] { average->sum_alone(); }};
          }};
}

}  // namespace ladder
