// Sharded GPTs that look right and are not: each is the right one but for what it overrides.
#pragma once

#include <ATen/core/grad_mode.h>

#include <utility>

#include "common/testing/forwarding_communicator.hpp"
#include "step7_zero3/exercise/right_gpt.hpp"

namespace ladder::step7 {

struct WrongGpt : RightGpt {
  using RightGpt::RightGpt;
};

// ---- how far ahead

struct AllAtStart : WrongGpt {
  using WrongGpt::WrongGpt;
  void begin_forward(std::size_t unit) override {
    if (unit == 0) start_all(0, last_);
    units_.unshard(unit);
  }
};
struct IgnoresPrefetch : WrongGpt {
  IgnoresPrefetch(const GptOptions& options, std::uint64_t seed, int prefetch, Communicator& comm)
      : WrongGpt(options, seed, prefetch, comm) {
    prefetch_ = 0;
  }
};
struct TooFarAhead : WrongGpt {
  TooFarAhead(const GptOptions& options, std::uint64_t seed, int prefetch, Communicator& comm)
      : WrongGpt(options, seed, prefetch, comm) {
    ++prefetch_;
  }
};
struct WaitsAtOnce : WrongGpt {  // for what it gathers ahead
  using WrongGpt::WrongGpt;
  void start(std::size_t unit) override { units_.unshard(unit); }
};
struct OddRanksBackwards : WrongGpt {  // start what they gather ahead from the far end
  using WrongGpt::WrongGpt;
  void start_all(std::size_t first, std::size_t last) override {
    const bool is_backwards = comm_.rank() % 2 == 1;
    for (std::size_t u = first; u <= last; ++u) start(is_backwards ? first + last - u : u);
  }
};

// ---- what is gathered

struct ForgetsBackward : WrongGpt {
  using WrongGpt::WrongGpt;
  void gather_for_backward(std::size_t /*unit*/) override {}
};
struct GathersTheEmbeddingAgain : WrongGpt {  // for its backward, which reads nothing
  using WrongGpt::WrongGpt;
  void begin_backward(std::size_t unit) override {
    WrongGpt::begin_backward(unit);
    if (unit > 0) return;
    units_.unshard(0);
    drop(0);
  }
};
struct ForgetsTheTiedEmbedding : WrongGpt {  // when a forward in between has dropped it
  using WrongGpt::WrongGpt;
  void gather_for_backward(std::size_t unit) override {
    for (std::size_t u = unit; u >= 1 && u + prefetch_ >= unit; --u) start(u);
    units_.unshard(unit);
  }
};
struct ForgetsTheHead : WrongGpt {  // likewise
  using WrongGpt::WrongGpt;
  void begin_backward(std::size_t unit) override {
    if (unit < last_) return WrongGpt::begin_backward(unit);
    for (std::size_t u = 1; u <= prefetch_ && u < last_; ++u) start(last_ - u);
    if (is_tied()) units_.unshard(0);
  }
};
struct GathersByAllReduce : private ForwardingCommunicator, WrongGpt {
  GathersByAllReduce(const GptOptions& options, std::uint64_t seed, int prefetch,
                     Communicator& comm)
      : ForwardingCommunicator(comm), WrongGpt(options, seed, prefetch, *this) {}
  WorkPtr all_gather(const at::Tensor& shard, at::Tensor full) override {
    full.detach().zero_().narrow(0, rank() * shard.numel(), shard.numel()).copy_(shard);
    return ForwardingCommunicator::all_reduce(std::move(full));
  }
};
struct GathersToBeMade : WrongGpt {
  GathersToBeMade(const GptOptions& options, std::uint64_t seed, int prefetch, Communicator& comm)
      : WrongGpt(options, seed, prefetch, comm) {
    units_.unshard(0);
    units_.reshard(0);
  }
};

// ---- what is dropped

struct NeverReshards : WrongGpt {
  using WrongGpt::WrongGpt;
  void drop(std::size_t /*unit*/) override {}
  void drop_all() override {}
};
struct KeepsBlocks : WrongGpt {  // from forward to backward
  using WrongGpt::WrongGpt;
  bool is_kept(std::size_t unit) override { return is_block(unit) || WrongGpt::is_kept(unit); }
};
struct DropsTheHead : WrongGpt {  // after its forward
  using WrongGpt::WrongGpt;
  bool is_kept(std::size_t unit) override { return unit == 0 && is_tied(); }
};
struct DropsTheTied : WrongGpt {  // embedding after its forward, although the head needs it
  using WrongGpt::WrongGpt;
  bool is_kept(std::size_t unit) override { return unit == last_; }
};
struct GathersTheTiedAgain : DropsTheTied {  // for the head
  using DropsTheTied::DropsTheTied;
  void begin_forward(std::size_t unit) override {
    DropsTheTied::begin_forward(unit);
    if (unit == last_ && is_tied()) units_.unshard(0);
  }
};
struct KeepsTheTiedTooLong : WrongGpt {  // until backward is over
  using WrongGpt::WrongGpt;
  void begin_backward(std::size_t unit) override {
    if (unit < last_) drop(unit + 1);
    if (unit == 0) drop(0);
    if (unit >= 1) gather_for_backward(unit);
  }
};
struct LeavesTheFirstBlock : WrongGpt {  // whole after backward
  using WrongGpt::WrongGpt;
  void begin_backward(std::size_t unit) override {
    if (unit > 0) WrongGpt::begin_backward(unit);
  }
};
struct EvaluationKeeps : WrongGpt {
  using WrongGpt::WrongGpt;
  void end_forward(std::size_t unit) override {
    if (!is_kept(unit)) drop(unit);
  }
};
struct TrustsWhatIsLeft : WrongGpt {  // of a forward whose backward has not come
  using WrongGpt::WrongGpt;
  at::Tensor forward(const at::Tensor& tokens) override {
    is_new = true;
    return WrongGpt::forward(tokens);
  }
  void drop_all() override {
    if (!std::exchange(is_new, false)) WrongGpt::drop_all();
  }
  bool is_new = false;
};

// ---- the rest of the header

struct HooksWhatNeedsNoGradient : WrongGpt {
  using WrongGpt::WrongGpt;
  void on_gradient_of_output(const at::Tensor& output, std::size_t unit) override {
    if (at::GradMode::is_enabled()) hook(output, unit);
  }
};
struct AcceptsAnyPrefetch : WrongGpt {
  AcceptsAnyPrefetch(const GptOptions& options, std::uint64_t seed, int prefetch,
                     Communicator& comm)
      : WrongGpt(options, seed, std::max(prefetch, 0), comm) {}
};
struct MeanLoss : WrongGpt {
  using WrongGpt::WrongGpt;
  at::Tensor loss_sum(const at::Tensor& tokens, const at::Tensor& targets) override {
    return WrongGpt::loss_sum(tokens, targets) / static_cast<double>(targets.numel());
  }
};

}  // namespace ladder::step7
