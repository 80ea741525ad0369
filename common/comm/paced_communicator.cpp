#include "common/comm/paced_communicator.hpp"

#include <algorithm>
#include <charconv>
#include <chrono>
#include <cmath>
#include <string_view>
#include <thread>
#include <utility>

#include "common/comm/traffic_theory.hpp"
#include "common/core/check.hpp"

namespace ladder {
namespace {

using Clock = std::chrono::steady_clock;

// The time between two polls of the inner operations. It is long compared with a poll, so polling
// takes almost no CPU time; other ranks wait up to this much longer for this rank's folds.
constexpr auto kNap = std::chrono::microseconds(100);

// Links outside these bounds are typos; within them, all times fit the clock.
constexpr double kMaxLatencyUs = 60e6;
constexpr double kMinGbitPerS = 1e-6;

// Returns an empty string for a valid link.
std::string what_is_wrong_with(Link link) {
  if (!(link.latency_us >= 0 && link.latency_us <= kMaxLatencyUs)) {
    return concat("the latency is ", link.latency_us, " us, it must be between 0 and ",
                  kMaxLatencyUs);
  }
  if (!(link.gbit_per_s >= kMinGbitPerS && std::isfinite(link.gbit_per_s))) {
    return concat("the bandwidth is ", link.gbit_per_s, " Gbit/s, it must be at least ",
                  kMinGbitPerS);
  }
  return {};
}

bool read_number(std::string_view text, double& number) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  return error == std::errc() && end == text.data() + text.size();
}

class PacedWork final : public Work {
 public:
  PacedWork(WorkPtr inner, Clock::time_point link_done)
      : inner_(std::move(inner)), link_done_(link_done) {}

  bool test() override { return inner_->test() && Clock::now() >= link_done_; }
  void wait() override {
    for (auto now = Clock::now(); now < link_done_; now = Clock::now()) {
      inner_->test();
      std::this_thread::sleep_until(std::min(link_done_, now + kNap));
    }
    inner_->wait();
  }

 private:
  WorkPtr inner_;
  Clock::time_point link_done_;
};

}  // namespace

Link parse_link(const std::string& text) {
  const std::string_view parts(text);
  const std::size_t colon = parts.find(':');
  Link link;
  std::string wrong;
  if (colon == std::string_view::npos) {
    wrong = "the colon is missing";
  } else if (!read_number(parts.substr(0, colon), link.latency_us) ||
             !read_number(parts.substr(colon + 1), link.gbit_per_s)) {
    wrong = "it is not two numbers";
  } else {
    wrong = what_is_wrong_with(link);
  }
  check_usage(wrong.empty(), "--link is '", text, "': ", wrong,
              "; it takes LATENCY_US:GBPS, for example 50:1 for 50 us per message and 1 Gbit/s");
  return link;
}

class PacedCommunicator::LinkClock {
 public:
  explicit LinkClock(Link link) : link_(link) {
    const std::string reason = what_is_wrong_with(link);
    check(reason.empty(), "a paced communicator: ", reason);
  }

  // Queues for the link; returns the time at which it will have sent this.
  Clock::time_point occupy(const OpTraffic& sent) {
    const double seconds = static_cast<double>(sent.messages) * link_.latency_us * 1e-6 +
                           static_cast<double>(sent.bytes_sent) * 8 / (link_.gbit_per_s * 1e9);
    const auto needed = std::chrono::ceil<Clock::duration>(std::chrono::duration<double>(seconds));
    return free_at_ = std::max(free_at_, Clock::now()) + needed;
  }

 private:
  Link link_;
  Clock::time_point free_at_ = Clock::now();
};

PacedCommunicator::PacedCommunicator(std::unique_ptr<Communicator> inner, Link link)
    : PacedCommunicator(std::move(inner), std::make_shared<LinkClock>(link)) {}

PacedCommunicator::PacedCommunicator(std::unique_ptr<Communicator> inner,
                                     std::shared_ptr<LinkClock> link)
    : inner_(std::move(inner)), link_(std::move(link)) {
  check(inner_ != nullptr, "a paced communicator needs one to pace");
}

// Takes an inner operation that has started: one that was refused never occupies the link.
WorkPtr PacedCommunicator::paced(WorkPtr inner, const OpTraffic& sent) {
  if (sent.messages == 0) return inner;
  return std::make_unique<PacedWork>(std::move(inner), link_->occupy(sent));
}

WorkPtr PacedCommunicator::all_reduce(at::Tensor inout) {
  WorkPtr work = inner_->all_reduce(inout);
  const Traffic sent = all_reduce_traffic(inout.numel(), inout.element_size(), size(), rank());
  return paced(std::move(work), sent[CommOp::kAllReduce]);
}

WorkPtr PacedCommunicator::reduce_scatter(const at::Tensor& full, at::Tensor shard) {
  WorkPtr work = inner_->reduce_scatter(full, std::move(shard));
  const Traffic sent = reduce_scatter_traffic(full.numel(), full.element_size(), size(), rank());
  return paced(std::move(work), sent[CommOp::kReduceScatter]);
}

WorkPtr PacedCommunicator::all_gather(const at::Tensor& shard, at::Tensor full) {
  WorkPtr work = inner_->all_gather(shard, full);
  const Traffic sent = all_gather_traffic(full.numel(), full.element_size(), size(), rank());
  return paced(std::move(work), sent[CommOp::kAllGather]);
}

WorkPtr PacedCommunicator::broadcast(at::Tensor inout, int root) {
  WorkPtr work = inner_->broadcast(inout, root);
  const Traffic sent = broadcast_traffic(inout.numel(), inout.element_size(), size(), rank(), root);
  return paced(std::move(work), sent[CommOp::kBroadcast]);
}

WorkPtr PacedCommunicator::send(const at::Tensor& tensor, int peer, int tag) {
  WorkPtr work = inner_->send(tensor, peer, tag);
  const Traffic sent = send_traffic(tensor.numel(), tensor.element_size());
  return paced(std::move(work), sent[CommOp::kSend]);
}

WorkPtr PacedCommunicator::recv(at::Tensor tensor, int peer, int tag) {
  return inner_->recv(std::move(tensor), peer, tag);
}

std::unique_ptr<Communicator> PacedCommunicator::split(int color, int key) {
  std::unique_ptr<Communicator> part = inner_->split(color, key);
  if (part == nullptr) return nullptr;
  return std::unique_ptr<Communicator>(new PacedCommunicator(std::move(part), link_));
}

}  // namespace ladder
