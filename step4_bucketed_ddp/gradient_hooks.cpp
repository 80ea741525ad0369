#include "step4_bucketed_ddp/gradient_hooks.hpp"

#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/variable.h>

#include <memory>
#include <utility>

namespace ladder {

using torch::autograd::impl::set_post_acc_grad_hooks;

class GradientHooks::Hook final : public torch::autograd::PostAccumulateGradHook {
 public:
  Hook(const GradientHooks& hooks, std::size_t leaf) : hooks_(hooks), leaf_(leaf) {}
  void operator()(const at::Tensor& /*parameter*/) override {
    const TraceScope scope(hooks_.log_);
    hooks_.on_gradient_(leaf_);
  }

 private:
  const GradientHooks& hooks_;
  std::size_t leaf_;
};

GradientHooks::GradientHooks(const std::vector<NamedTensor>& leaves,
                             std::function<void(std::size_t leaf)> on_gradient)
    : on_gradient_(std::move(on_gradient)) {
  for (std::size_t i = 0; i < leaves.size(); ++i) {
    if (!leaves[i].tensor.requires_grad()) continue;
    hooked_.push_back(leaves[i].tensor);
    set_post_acc_grad_hooks(hooked_.back(), std::make_unique<Hook>(*this, i));
  }
}

GradientHooks::~GradientHooks() {
  for (const at::Tensor& leaf : hooked_) set_post_acc_grad_hooks(leaf, nullptr);
}

}  // namespace ladder
