// Sharded GPTs that look right and are not: each is the right one but for what it overrides.
#pragma once

#include <ATen/core/grad_mode.h>

#include <utility>

#include "common/testing/forwarding_communicator.hpp"
#include "step7_zero3/exercise/right_model.hpp"

namespace ladder::step7 {

struct WrongModel : RightModel {
  using RightModel::RightModel;
};

// ---- how far ahead

struct AllAtStart : WrongModel {
  using WrongModel::WrongModel;
  void begin_forward(std::size_t unit) override {
    if (unit == 0) start_all(0, last_);
    units_.unshard(unit);
  }
};
struct IgnoresPrefetch : WrongModel {
  IgnoresPrefetch(const ModelBuilder& build, int prefetch, Communicator& comm)
      : WrongModel(build, prefetch, comm) {
    prefetch_ = 0;
  }
};
struct TooFarAhead : WrongModel {
  TooFarAhead(const ModelBuilder& build, int prefetch, Communicator& comm)
      : WrongModel(build, prefetch, comm) {
    ++prefetch_;
  }
};
struct WaitsAtOnce : WrongModel {  // for what it gathers ahead
  using WrongModel::WrongModel;
  void start_gather(std::size_t unit) override { units_.unshard(unit); }
};
struct OddRanksBackwards : WrongModel {  // start what they gather ahead from the far end
  using WrongModel::WrongModel;
  void start_all(std::size_t first, std::size_t last) override {
    const bool is_backwards = comm_.rank() % 2 == 1;
    for (std::size_t u = first; u <= last; ++u) start_gather(is_backwards ? first + last - u : u);
  }
};

// ---- what is gathered

struct ForgetsBackward : WrongModel {
  using WrongModel::WrongModel;
  void gather_for_backward(std::size_t /*unit*/) override {}
};
struct GathersTheEmbeddingAgain : WrongModel {  // for its backward, which reads nothing
  using WrongModel::WrongModel;
  void begin_backward(std::size_t unit) override {
    WrongModel::begin_backward(unit);
    if (unit > 0) return;
    units_.unshard(0);
    drop(0);
  }
};
struct ForgetsTheTiedEmbedding : WrongModel {  // when a forward in between has dropped it
  using WrongModel::WrongModel;
  void gather_for_backward(std::size_t unit) override {
    for (std::size_t u = unit; u >= 1 && u + prefetch_ >= unit; --u) start_gather(u);
    units_.unshard(unit);
  }
};
struct ForgetsTheHead : WrongModel {  // likewise
  using WrongModel::WrongModel;
  void begin_backward(std::size_t unit) override {
    if (unit < last_) return WrongModel::begin_backward(unit);
    for (std::size_t u = 1; u <= prefetch_ && u < last_; ++u) start_gather(last_ - u);
    if (is_tied()) units_.unshard(0);
  }
};
struct GathersByAllReduce : private ForwardingCommunicator, WrongModel {
  GathersByAllReduce(const ModelBuilder& build, int prefetch, Communicator& comm)
      : ForwardingCommunicator(comm), WrongModel(build, prefetch, *this) {}
  WorkPtr start(const Operation& operation) override {
    if (operation.kind != CommOp::kAllGather) return inner_.start(operation);
    const auto& [kind, full, shard, peer, tag] = operation;
    full.detach().zero_().narrow(0, rank() * shard.numel(), shard.numel()).copy_(shard);
    return inner_.all_reduce(full);
  }
};
struct GathersToBeMade : WrongModel {
  GathersToBeMade(const ModelBuilder& build, int prefetch, Communicator& comm)
      : WrongModel(build, prefetch, comm) {
    units_.unshard(0);
    units_.reshard(0);
  }
};

// ---- what is dropped

struct NeverReshards : WrongModel {
  using WrongModel::WrongModel;
  void drop(std::size_t /*unit*/) override {}
  void drop_all() override {}
};
struct KeepsBlocks : WrongModel {  // from forward to backward
  using WrongModel::WrongModel;
  bool is_kept(std::size_t unit) override { return is_block(unit) || WrongModel::is_kept(unit); }
};
struct DropsTheHead : WrongModel {  // after its forward
  using WrongModel::WrongModel;
  bool is_kept(std::size_t unit) override { return unit == 0 && is_tied(); }
};
struct DropsTheTied : WrongModel {  // embedding after its forward, although the head needs it
  using WrongModel::WrongModel;
  bool is_kept(std::size_t unit) override { return unit == last_; }
};
struct GathersTheTiedAgain : DropsTheTied {  // for the head
  using DropsTheTied::DropsTheTied;
  void begin_forward(std::size_t unit) override {
    DropsTheTied::begin_forward(unit);
    if (unit == last_ && is_tied()) units_.unshard(0);
  }
};
struct KeepsTheTiedTooLong : WrongModel {  // until backward is over
  using WrongModel::WrongModel;
  void begin_backward(std::size_t unit) override {
    if (unit < last_) drop(unit + 1);
    if (unit == 0) drop(0);
    if (unit >= 1) gather_for_backward(unit);
  }
};
struct LeavesTheFirstBlock : WrongModel {  // whole after backward
  using WrongModel::WrongModel;
  void begin_backward(std::size_t unit) override {
    if (unit > 0) WrongModel::begin_backward(unit);
  }
};
struct EvaluationKeeps : WrongModel {
  using WrongModel::WrongModel;
  void end_forward(std::size_t unit) override {
    if (!is_kept(unit)) drop(unit);
  }
};
struct TrustsWhatIsLeft : WrongModel {  // of a forward whose backward has not come
  using WrongModel::WrongModel;
  at::Tensor forward(const at::Tensor& tokens) override {
    is_new = true;
    return WrongModel::forward(tokens);
  }
  void drop_all() override {
    if (!std::exchange(is_new, false)) WrongModel::drop_all();
  }
  bool is_new = false;
};

// ---- the rest of the header

struct HooksWhatNeedsNoGradient : WrongModel {
  using WrongModel::WrongModel;
  void on_gradient_of_output(const at::Tensor& output, std::size_t unit) override {
    if (at::GradMode::is_enabled()) hook(output, unit);
  }
};
struct AcceptsAnyPrefetch : WrongModel {
  AcceptsAnyPrefetch(const ModelBuilder& build, int prefetch, Communicator& comm)
      : WrongModel(build, std::max(prefetch, 0), comm) {}
};
}  // namespace ladder::step7
