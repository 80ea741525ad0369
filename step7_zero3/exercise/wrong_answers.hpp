// Sharded GPTs that look right and are not. The grader must reject each of them, for the reason given.
#pragma once

#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "common/core/check.hpp"
#include "common/testing/forwarding_communicator.hpp"
#include "common/testing/wrong_answer.hpp"
#include "step7_zero3/exercise/grader.hpp"
#include "step7_zero3/sharded_units.hpp"

namespace ladder::step7 {

enum class Mistake {
  kNeverReshards,
  kAllAtStart,
  kKeepsBlocks,  // from forward to backward
  kIgnoresPrefetch,
  kTooFarAhead,  // by one unit
  kWaitsAtOnce,  // for what it gathers ahead
  kForgetsBackward,
  kHeadAgain,       // is dropped after its forward
  kEmbeddingAgain,  // is gathered for its backward, which reads nothing
  kDropsTied,       // the tied embedding, after its forward
  kAllReduces,      // what it should gather: slices in zeros
  kEvaluationKeeps,
  kLeavesTheFirstBlock,  // whole after backward
  kOddRanksBackwards,    // start what they gather ahead from the far end
};

// Gathers by an all-reduce of what is zero but for the own slice.
class GatherByAllReduce final : public ForwardingCommunicator {
 public:
  using ForwardingCommunicator::ForwardingCommunicator;
  WorkPtr all_gather(const at::Tensor& shard, at::Tensor full) override {
    full.detach().zero_().narrow(0, rank() * shard.numel(), shard.numel()).copy_(shard);
    return ForwardingCommunicator::all_reduce(std::move(full));
  }
};

// A sharded GPT with a mistake in it.
class WrongGpt {
 public:
  WrongGpt(Mistake mistake, const GptOptions& options, std::uint64_t seed, int prefetch,
           Communicator& comm)
      : mistake_(mistake),
        comm_(comm),
        by_all_reduce_(comm),
        plan_(plan_shards(
            plan_flat_layout(Gpt(options, 0, at::kMeta).units(), shard_multiple(comm.size())),
            comm.size(), comm.rank())),
        units_(plan_, mistake == Mistake::kAllReduces ? by_all_reduce_ : comm_),
        model_(options, seed, [this](const Unit& unit) { units_.add(unit); }),
        last_(units_.num_units() - 1),
        prefetch_(static_cast<std::size_t>(prefetch)) {
    if (mistake == Mistake::kIgnoresPrefetch) prefetch_ = 0;
    if (mistake == Mistake::kTooFarAhead) ++prefetch_;
  }

  at::Tensor forward(const at::Tensor& tokens) {
    if (mistake_ != Mistake::kNeverReshards) units_.reshard_all();
    if (mistake_ == Mistake::kAllAtStart) {
      for (std::size_t u = 0; u <= last_; ++u) units_.start_unshard(u);
    }
    at::Tensor x = tokens;
    for (std::size_t u = 0; u <= last_; ++u) {
      begin_forward(u);
      x = compute(u, x);
      if (x.requires_grad())
        x.register_hook([this, u](const at::Tensor& /*gradient*/) { begin_backward(u); });
      end_forward(u);
    }
    return x;
  }

  const ShardPlan& plan() const { return plan_; }
  const std::vector<NamedTensor>& leaves() const { return units_.leaves(); }

 private:
  at::Tensor compute(std::size_t unit, const at::Tensor& x) const {
    if (unit == 0) return model_.embedding()(x);
    return unit == last_ ? model_.head()(x) : model_.blocks()[unit - 1](x);
  }

  void begin_forward(std::size_t unit) {
    const std::size_t end = std::min(unit + prefetch_, last_);
    const bool is_backwards = mistake_ == Mistake::kOddRanksBackwards && comm_.rank() % 2 == 1;
    for (std::size_t u = unit; u <= end; ++u) start(is_backwards ? unit + end - u : u);
    units_.unshard(unit);
    if (unit == last_ && model_.options().tie_embeddings) units_.unshard(0);
  }

  void end_forward(std::size_t unit) {
    const bool is_tied_one = unit == 0 && model_.options().tie_embeddings;
    const bool is_block = unit > 0 && unit < last_;
    bool is_kept = unit == last_ || is_tied_one;
    if (mistake_ == Mistake::kNeverReshards) is_kept = true;
    if (mistake_ == Mistake::kKeepsBlocks && is_block) is_kept = true;
    if (mistake_ == Mistake::kHeadAgain && unit == last_) is_kept = false;
    if (mistake_ == Mistake::kDropsTied && is_tied_one) is_kept = false;
    if (!is_kept) units_.reshard(unit);
    const bool is_over = unit == last_ && !at::GradMode::is_enabled();
    if (is_over && mistake_ != Mistake::kEvaluationKeeps) units_.reshard_all();
  }

  void begin_backward(std::size_t unit) {
    const bool leaves_it = mistake_ == Mistake::kLeavesTheFirstBlock && unit == 0;
    if (mistake_ != Mistake::kNeverReshards && !leaves_it) {
      if (unit < last_) units_.reshard(unit + 1);
      if (unit + 1 == last_) units_.reshard(0);
    }
    if (mistake_ == Mistake::kEmbeddingAgain && unit == 0) {
      units_.unshard(0);
      units_.reshard(0);
    }
    if (mistake_ == Mistake::kForgetsBackward || unit == 0) return;
    for (std::size_t u = unit; u >= 1 && u + prefetch_ >= unit; --u) start(u);
    units_.unshard(unit);
  }

  void start(std::size_t unit) {
    units_.start_unshard(unit);
    if (mistake_ == Mistake::kWaitsAtOnce) units_.unshard(unit);
  }

  Mistake mistake_;
  Communicator& comm_;
  GatherByAllReduce by_all_reduce_;
  ShardPlan plan_;
  ShardedUnits units_;
  Gpt model_;
  std::size_t last_;
  std::size_t prefetch_;
};

inline MakeGpt make_wrong(Mistake mistake) {
  return
      [mistake](const GptOptions& options, std::uint64_t seed, int prefetch, Communicator& comm) {
        const auto wrong = std::make_shared<WrongGpt>(mistake, options, seed, prefetch, comm);
        return GptAttempt{[wrong](const at::Tensor& tokens) { return wrong->forward(tokens); },
                          wrong->leaves(), wrong->plan()};
      };
}

// Where nothing else is said, prefetch 0: unit u is the (u+1)-th that is gathered.
inline std::vector<WrongAnswer<Mistake>> wrong_answers() {
  const std::string in_order = "what a microbatch gathers, in this order, is ( ";
  const std::string forward = "embedding block0 block1 block2 head ";
  const std::string backward = "block2 block1 block0 ";
  const std::string all = "( " + forward + backward + ")";
  const std::string bytes = "the number of bytes of parameters beside the shard ";
  const std::string started = "the number of gathers that have been started when the ";
  return {
      {"never reshards", Mistake::kNeverReshards, 1, bytes + "at the most is "},
      {"all at the start", Mistake::kAllAtStart, 1,
       started + "forward of embedding begins is 5, not 1"},
      {"keeps the blocks", Mistake::kKeepsBlocks, 1, in_order + forward + "), not " + all},
      {"ignores prefetch", Mistake::kIgnoresPrefetch, 1,
       "untied, prefetch 1: " + started + "backward of block1 begins is 7, not 8"},
      {"too far ahead", Mistake::kTooFarAhead, 1,
       "untied, prefetch 0: " + started + "forward of block0 begins is 3, not 2"},
      {"waits at once", Mistake::kWaitsAtOnce, 1,
       "that have been waited for when the forward of embedding begins is 2, not 1"},
      {"forgets backward", Mistake::kForgetsBackward, 1,
       "the backward of block2 reads memory that is gone"},
      {"gathers the head again", Mistake::kHeadAgain, 1,
       in_order + forward + "head " + backward + "), not " + all},
      {"gathers the embedding again", Mistake::kEmbeddingAgain, 1,
       "untied, prefetch 0: " + in_order + forward + backward + "embedding ), not " + all},
      {"drops the tied embedding", Mistake::kDropsTied, 1,
       "tied, prefetch 0: " + in_order + forward + "embedding " + backward + "), not " + all},
      {"gathers by an all-reduce", Mistake::kAllReduces, 2,
       "the number of bytes that a step of 2 microbatches sends is "},
      {"keeps what evaluation gathered", Mistake::kEvaluationKeeps, 1,
       bytes + "after a forward without gradients, which no backward follows, is "},
      {"leaves the first block whole", Mistake::kLeavesTheFirstBlock, 1,
       bytes + "after a backward is "},
      {"odd ranks backwards", Mistake::kOddRanksBackwards, 2, "would wait for each other for ever"},
  };
}

}  // namespace ladder::step7
