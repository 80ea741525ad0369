// A sharded GPT that is right, in small parts: a wrong one overrides a part. Read it after you have
// written your own.
#pragma once

#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <memory>
#include <vector>

#include "common/core/check.hpp"
#include "step7_zero3/exercise/grader.hpp"
#include "step7_zero3/sharded_units.hpp"

namespace ladder::step7 {

class RightModel {
 public:
  RightModel(const ModelBuilder& build, int prefetch, Communicator& comm)
      : comm_(comm),
        plan_(
            plan_shards(plan_flat_layout(build({}, at::kMeta).units(), shard_multiple(comm.size())),
                        comm.size(), comm.rank())),
        units_(plan_, comm),
        model_(build([this](const Unit& unit) { units_.add(unit); }, at::kCPU)),
        last_(units_.num_units() - 1),
        prefetch_(static_cast<std::size_t>(prefetch)) {
    check(prefetch >= 0, "prefetch is ", prefetch);
  }
  virtual ~RightModel() = default;
  RightModel(const RightModel&) = delete;
  RightModel& operator=(const RightModel&) = delete;

  virtual at::Tensor forward(const at::Tensor& tokens) {
    drop_all();
    at::Tensor x = tokens;
    for (std::size_t u = 0; u <= last_; ++u) {
      begin_forward(u);
      x = model_.layers[u].forward(x);
      on_gradient_of_output(x, u);
      end_forward(u);
    }
    return x;
  }

  const ShardPlan& plan() const { return plan_; }
  const std::vector<NamedTensor>& leaves() const { return units_.leaves(); }

 protected:
  virtual void begin_forward(std::size_t unit) {
    start_all(unit, std::min(unit + prefetch_, last_));
    units_.unshard(unit);
  }
  virtual bool is_kept(std::size_t unit) { return unit == last_ || (unit == 0 && is_tied()); }
  virtual void end_forward(std::size_t unit) {
    if (!is_kept(unit)) drop(unit);
    if (unit == last_ && !at::GradMode::is_enabled()) drop_all();
  }
  virtual void on_gradient_of_output(const at::Tensor& output, std::size_t unit) {
    if (output.requires_grad()) hook(output, unit);
  }
  virtual void begin_backward(std::size_t unit) {
    if (unit < last_) drop(unit + 1);
    if (unit + 1 == last_) drop(0);
    if (unit >= 1) gather_for_backward(unit);
  }
  virtual void gather_for_backward(std::size_t unit) {
    for (std::size_t u = unit; u >= 1 && u + prefetch_ >= unit; --u) start_gather(u);
    units_.unshard(unit);
    if (unit == last_ && is_tied()) units_.unshard(0);
  }
  virtual void start_all(std::size_t first, std::size_t last) {
    for (std::size_t u = first; u <= last; ++u) start_gather(u);
  }
  virtual void start_gather(std::size_t unit) { units_.start_unshard(unit); }
  virtual void drop(std::size_t unit) { units_.reshard(unit); }
  virtual void drop_all() { units_.reshard_all(); }

  void hook(const at::Tensor& output, std::size_t unit) {
    output.register_hook([this, unit](const at::Tensor& /*gradient*/) { begin_backward(unit); });
  }
  bool is_tied() const { return model_.layers[last_].reads.has_value(); }
  bool is_block(std::size_t unit) const { return unit > 0 && unit < last_; }

  Communicator& comm_;
  ShardPlan plan_;
  ShardedUnits units_;
  Model model_;
  std::size_t last_;  // the head; 0 is the embedding
  std::size_t prefetch_;
};

}  // namespace ladder::step7
