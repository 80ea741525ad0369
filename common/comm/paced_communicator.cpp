#include "common/comm/paced_communicator.hpp"

#include <ATen/ops/empty.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <thread>
#include <utility>

#include "common/comm/known_arrival.hpp"
#include "common/comm/traffic_theory.hpp"
#include "common/core/check.hpp"
#include "common/core/memory_ledger.hpp"

namespace ladder {
namespace {

using Clock = std::chrono::steady_clock;

// The time between two polls of the inner operations. It is long compared with a poll, so polling
// takes almost no CPU time; other ranks wait up to this much longer for this rank's folds.
constexpr auto kNap = std::chrono::microseconds(100);

// The times at which ranks' links will be done, as they are sent between ranks.
at::Tensor no_link_times(int num_links) {
  const MemoryScope scope(MemoryCategory::kCommunication);
  return at::empty({num_links}, at::kLong);
}

at::Tensor link_time(Clock::time_point done) {
  at::Tensor time = no_link_times(1);
  *time.mutable_data_ptr<std::int64_t>() = done.time_since_epoch().count();
  return time;
}

class PacedWork final : public Work, public KnownArrival {
 public:
  // `times_work` sends or receives the link times, or both. This rank's own links, if the
  // operation occupies them, are done at `own_links_done`.
  PacedWork(WorkPtr inner, WorkPtr times_work, at::Tensor link_times, bool is_message,
            Clock::time_point own_links_done = {})
      : is_message_(is_message),
        inner_(std::move(inner)),
        times_work_(std::move(times_work)),
        link_times_(std::move(link_times)),
        own_links_done_(own_links_done) {}

  bool test() override {
    if (!inner_->test() || !times_work_->test()) return false;
    times_work_->wait();  // at once; only now may the times be read
    return Clock::now() >= links_done();
  }
  void wait() override {
    sleep_until(own_links_done_);
    inner_->wait();
    times_work_->wait();
    sleep_until(links_done());
  }
  std::int64_t arrival_ns() const override {
    return is_message_ ? std::chrono::nanoseconds(links_done().time_since_epoch()).count() : 0;
  }

 private:
  Clock::time_point links_done() const {  // once the times are here
    const auto* const times = link_times_.const_data_ptr<std::int64_t>();
    return Clock::time_point(
        Clock::duration(*std::max_element(times, times + link_times_.numel())));
  }
  void sleep_until(Clock::time_point end) {
    for (auto now = Clock::now(); now < end; now = Clock::now()) {
      inner_->test();
      std::this_thread::sleep_until(std::min(end, now + kNap));
    }
  }

  bool is_message_;
  WorkPtr inner_;
  WorkPtr times_work_;
  at::Tensor link_times_;
  Clock::time_point own_links_done_;
};

}  // namespace

class PacedCommunicator::LinkClocks {
 public:
  explicit LinkClocks(const Links& links) : queues_(links) {
    check(links.is_on(), "a paced communicator has no link");
    for (const Link& link : {links.inside, links.outside}) {
      const std::string reason = link.is_on() ? what_is_wrong_with(link) : "";
      check(reason.empty(), "a paced communicator: ", reason);
    }
  }

  // Queues for the links; returns the time at which they will have sent this.
  Clock::time_point occupy(const LinksUse& use) {
    const std::chrono::duration<double> now = Clock::now() - start_;
    const std::chrono::duration<double> done(queues_.occupy(now.count(), use));
    return start_ + std::chrono::ceil<Clock::duration>(done);
  }

  Traffic of_link_times;  // what their exchange has sent, in all groups that share the links

 private:
  LinkQueues queues_;
  Clock::time_point start_ = Clock::now();
};

PacedCommunicator::PacedCommunicator(std::unique_ptr<Communicator> inner, const Links& links)
    : PacedCommunicator(std::move(inner), std::make_shared<LinkClocks>(links)) {}

PacedCommunicator::PacedCommunicator(std::unique_ptr<Communicator> inner,
                                     std::shared_ptr<LinkClocks> links)
    : ForwardingCommunicator(std::move(inner)), links_(std::move(links)) {}

Traffic PacedCommunicator::traffic() const {
  Traffic traffic = inner_.traffic();
  return traffic -= links_->of_link_times;
}

WorkPtr PacedCommunicator::start(const Operation& operation) {
  WorkPtr work = inner_.start(operation);  // first: one that is refused never occupies the link
  // Either all ranks of the operation exchange link times or none does, because they pass the same
  // numel.
  if (size() == 1 || operation.is_barrier() || operation.tensor.numel() == 0) return work;
  const LinksUse use = sent_by(operation, size(), rank(), machines()).links;
  const auto done = use == LinksUse() ? Clock::time_point() : links_->occupy(use);
  // After a message, or from the root, comes one link's time; otherwise those of all ranks.
  const bool has_sender = operation.is_message() || operation.kind == CommOp::kBroadcast;
  const at::Tensor own_time = link_time(done);
  const Operation of_times =
      has_sender ? Operation{operation.kind, own_time, {}, operation.peer, operation.tag}
                 : Operation{CommOp::kAllGather, no_link_times(size()), own_time};
  WorkPtr times_work = inner_.start(of_times);
  links_->of_link_times += traffic_of(of_times, size(), rank(), machines());
  return std::make_unique<PacedWork>(std::move(work), std::move(times_work), of_times.tensor,
                                     operation.is_message(), done);
}

std::unique_ptr<Communicator> PacedCommunicator::split(int color, int key) {
  std::unique_ptr<Communicator> part = inner_.split(color, key);
  if (part == nullptr) return nullptr;
  return std::unique_ptr<Communicator>(new PacedCommunicator(std::move(part), links_));
}

}  // namespace ladder
