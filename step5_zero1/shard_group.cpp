#include "step5_zero1/shard_group.hpp"

#include <chrono>
#include <deque>
#include <thread>
#include <utility>

#include "common/core/timer.hpp"

namespace ladder {
namespace {

std::unique_ptr<Communicator> ranks_of_copy(Communicator& all_ranks, int num_ranks) {
  if (num_ranks == all_ranks.size()) return std::make_unique<ForwardingCommunicator>(all_ranks);
  return all_ranks.split_by([=](int rank) { return rank / num_ranks; });
}

// A Work of the group, which moves the sums on whenever it is asked.
class GroupWork : public Work {
 public:
  GroupWork(WorkPtr inner, std::function<bool()> advance)
      : inner_(std::move(inner)), advance_(std::move(advance)) {}

  bool test() override {
    advance_();
    return inner_->test();
  }
  // While there are sums between their phases, it must not sleep. If that takes long, somebody may
  // be missing: the transport, which knows how long to wait, waits for the rest.
  void wait() override {
    constexpr double kPatienceSeconds = 1;
    const Timer timer;
    while (advance_() && timer.seconds() < kPatienceSeconds && !inner_->test())
      timer.seconds() < 1e-3 ? std::this_thread::yield()
                             : std::this_thread::sleep_for(std::chrono::microseconds(50));
    inner_->wait();
  }

 private:
  WorkPtr inner_;
  std::function<bool()> advance_;
};

}  // namespace

struct ShardGroup::State {
  // A sum over all ranks.
  struct Sum {
    WorkPtr within;    // its first phase
    at::Tensor slice;  // which it fills, and the second one sums
    WorkPtr across;    // null until it has started
  };
  using SumPtr = std::shared_ptr<Sum>;
  std::deque<SumPtr> between_;  // those whose second phase has not started, the oldest first

  Communicator& group_;                   // the ranks that share this rank's copy
  std::unique_ptr<Communicator> copies_;  // the ranks that have the same slices as this one

  State(Communicator& group, std::unique_ptr<Communicator> copies)
      : group_(group), copies_(std::move(copies)) {}

  SumPtr start_sum(const at::Tensor& full, const at::Tensor& slice) {
    const auto sum = std::make_shared<Sum>(group_.reduce_scatter(full, slice), slice, nullptr);
    between_.push_back(sum);
    if (group_.runs_in_order(slice)) start_across();
    return sum;
  }

  // Of the oldest sum.
  void start_across() {
    const SumPtr sum = between_.front();
    sum->across = copies_->all_reduce(sum->slice);
    between_.pop_front();
  }

  // Starts what can start, without waiting. True if some sums are still between their phases.
  bool advance() {
    while (!between_.empty() && between_.front()->within->test()) {
      between_.front()->within->wait();  // at once; only now may the slice be read
      start_across();
    }
    return !between_.empty();
  }

  bool is_summed(Sum& sum) {
    advance();
    return sum.across && sum.across->test();
  }

  void finish(Sum& sum) {
    while (!sum.across) {
      between_.front()->within->wait();
      start_across();
    }
    sum.within->wait();
    sum.across->wait();
  }
};

ShardGroup::ShardGroup(Communicator& all_ranks, int num_ranks)
    : ForwardingCommunicator(ranks_of_copy(all_ranks, num_ranks)),
      copy_(all_ranks.rank() / num_ranks) {
  if (num_ranks == all_ranks.size()) return;
  state_ = std::make_unique<State>(inner_,
                                   all_ranks.split_by([=](int rank) { return rank % num_ranks; }));
}

ShardGroup::~ShardGroup() = default;

WorkPtr ShardGroup::start(const Operation& operation) {
  if (!state_) return inner_.start(operation);
  const auto advance = [state = state_.get()] { return state->advance(); };
  if (operation.kind != CommOp::kReduceScatter)
    return std::make_unique<GroupWork>(inner_.start(operation), advance);

  class SumWork final : public Work {
   public:
    SumWork(State& state, State::SumPtr sum) : state_(state), sum_(std::move(sum)) {}
    bool test() override { return state_.is_summed(*sum_); }
    void wait() override { state_.finish(*sum_); }

   private:
    State& state_;
    State::SumPtr sum_;
  };
  return std::make_unique<SumWork>(*state_, state_->start_sum(operation.tensor, operation.shard));
}

}  // namespace ladder
