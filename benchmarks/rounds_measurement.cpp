#include "benchmarks/rounds_measurement.hpp"

#include <ATen/ops/ones.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <iterator>
#include <memory>
#include <thread>
#include <utility>

#include "common/comm/forwarding_communicator.hpp"
#include "common/comm/threads/run_as_threads.hpp"
#include "common/comm/traffic_theory.hpp"
#include "common/core/check.hpp"
#include "common/core/timer.hpp"
#include "step9_diloco/diloco.hpp"

namespace ladder {
namespace {

constexpr std::int64_t kNumTensors = 16;

std::vector<Unit> paced_model(std::int64_t numel) {
  Unit unit = {"model", {}};
  for (std::int64_t i = 0; i < kNumTensors; ++i)
    unit.tensors.push_back({concat("tensor", i), at::ones({numel / kNumTensors})});
  return {unit};
}

// Passes on to the group's averager, and notes when.
class WatchedAverager final : public Averager {
 public:
  WatchedAverager(Communicator& comm, const Timer& timer) : inner_(comm), timer_(timer) {}

  void start(at::Tensor values) override {
    flights.push_back({.start_s = timer_.seconds()});
    inner_.start(std::move(values));
  }
  void poll() override { inner_.poll(); }
  std::optional<int> finish() override {
    flights.back().awaited_s = timer_.seconds();
    const std::optional<int> num_workers = inner_.finish();
    flights.back().finished_s = timer_.seconds();
    return num_workers;
  }

  std::vector<RoundsTimeline::Flight> flights;

 private:
  GroupAverager inner_;
  const Timer& timer_;
};

// Sleeps as long as an inner step takes.
void train(const PacedRounds& rounds, Averager& averager) {
  const auto start = std::chrono::steady_clock::now();
  const int num_naps = std::max(1, rounds.polls_per_step);
  for (int nap = 1; nap <= num_naps; ++nap) {
    const std::chrono::duration<double> past(rounds.step_s * nap / num_naps);
    std::this_thread::sleep_until(start + past);
    if (nap <= rounds.polls_per_step) averager.poll();
  }
}

// A network that carries nothing unless somebody asks it to, as MPI does with messages above its
// eager limit. An all-reduce, of which one is in flight at a time, is sent in two halves, as MPI's
// has two phases. Each begins in a test() or wait(): the first in the first one, the second in the
// first one that finds the first half done.
class PolledCommunicator final : public ForwardingCommunicator {
 public:
  using ForwardingCommunicator::ForwardingCommunicator;
  WorkPtr start(const Operation& operation) override {
    if (operation.kind != CommOp::kAllReduce) return inner_.start(operation);
    return std::make_unique<PolledWork>(inner_, operation.tensor);
  }

 private:
  class PolledWork final : public Work {
   public:
    PolledWork(Communicator& comm, at::Tensor inout) : comm_(comm), inout_(std::move(inout)) {}
    bool test() override {
      while (half_ == nullptr || half_->test()) {
        if (num_started_ == 2) return true;
        start_half();
      }
      return false;
    }
    void wait() override {
      while (num_started_ < 2) start_half();
      half_->wait();
    }

   private:
    void start_half() {
      if (half_ != nullptr) half_->wait();
      half_ = comm_.all_reduce(inout_.tensor_split(2)[num_started_++]);
    }

    Communicator& comm_;
    at::Tensor inout_;
    WorkPtr half_;  // the one started last
    std::size_t num_started_ = 0;
  };
};

RoundsTimeline run_worker(const PacedRounds& rounds, Communicator& group) {
  PacedCommunicator paced(group.split(0, group.rank()), rounds.link);
  PolledCommunicator polled(paced);
  return measure_on(rounds.must_be_polled ? static_cast<Communicator&>(polled) : paced, rounds);
}

}  // namespace

RoundsTimeline measure_on(Communicator& comm, const PacedRounds& rounds) {
  FlatModel model(paced_model(rounds.numel)), global(paced_model(rounds.numel));
  RoundsTimeline timeline;
  timeline.step_s = rounds.step_s;
  comm.barrier();
  const Timer timer;
  WatchedAverager averager(comm, timer);
  Diloco diloco(model, global, rounds.diloco, averager);
  for (std::int64_t step = 1; step <= rounds.num_steps; ++step) {
    timeline.step_starts_s.push_back(timer.seconds());
    train(rounds, averager);
    const DilocoAction due = plan_diloco(rounds.diloco, step);
    if (due.starts) diloco.start_average();
    if (due.finishes) diloco.finish_round();
  }
  timeline.total_s = timer.seconds();
  timeline.flights = averager.flights;
  for (std::size_t i = 0; i < timeline.flights.size(); ++i) {
    timeline.flights[i].fragment = fragment_of_round(rounds.diloco, static_cast<std::int64_t>(i));
  }
  return timeline;
}

double PacedRounds::transfer_s() const {
  double longest = 0;
  for (int rank = 0; rank < num_workers; ++rank) {
    const OpTraffic sent =
        all_reduce_traffic(numel / diloco.num_fragments, 4, num_workers, rank)[CommOp::kAllReduce];
    longest = std::max(longest, 1e-6 * link.latency_us * static_cast<double>(sent.messages) +
                                    8e-9 * static_cast<double>(sent.bytes_sent) / link.gbit_per_s);
  }
  return longest;
}

double PacedRounds::predicted_wait_s() const {
  return std::max(0.0, transfer_s() - static_cast<double>(diloco.sync_delay) * step_s);
}

double PacedRounds::predicted_s() const {
  const std::int64_t num_rounds = num_steps / steps_per_round(diloco);
  return static_cast<double>(num_steps) * step_s +
         static_cast<double>(num_rounds) * predicted_wait_s();
}

double RoundsTimeline::waited_s() const {
  double sum = 0;
  for (const Flight& flight : flights) sum += flight.finished_s - flight.awaited_s;
  return sum;
}

double RoundsTimeline::median_wait_s() const {
  std::vector<double> waits;
  for (const Flight& flight : flights) waits.push_back(flight.finished_s - flight.awaited_s);
  std::nth_element(waits.begin(), waits.begin() + std::ssize(waits) / 2, waits.end());
  return waits[waits.size() / 2];
}

RoundsTimeline measure(const PacedRounds& rounds) {
  RoundsTimeline of_worker_0;
  run_as_threads(rounds.num_workers, [&](Communicator& group) {
    RoundsTimeline timeline = run_worker(rounds, group);
    if (group.rank() == 0) of_worker_0 = std::move(timeline);
  });
  return of_worker_0;
}

// ---- Figure ------------------------------------------------------------------------------------

std::string draw_svg(const std::vector<std::pair<std::string, RoundsTimeline>>& strips,
                     const std::string& title) {
  constexpr double kLeft = 24, kWidth = 940, kStrip = 104;
  double most_s = 0;
  for (const auto& [name, timeline] : strips) most_s = std::max(most_s, timeline.total_s);
  std::string out;
  const auto x = [&](double seconds) { return kLeft + kWidth * seconds / most_s; };
  const auto add_box = [&](double from_s, double to_s, double y, double height, const char* style) {
    char text[160];
    std::snprintf(text, sizeof text,
                  "<rect x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%.1f\" class=\"%s\"/>\n",
                  x(from_s), y, std::max(0.5, x(to_s) - x(from_s) - 0.8), height, style);
    out += text;
  };
  const auto add_text = [&](double at_x, double y, const std::string& words, const char* style) {
    char text[64];
    std::snprintf(text, sizeof text, "<text x=\"%.1f\" y=\"%.1f\" class=\"%s\">", at_x, y, style);
    out += concat(text, words, "</text>\n");
  };
  double top = 40;
  for (const auto& [name, timeline] : strips) {
    char summary[96];
    std::snprintf(summary, sizeof summary, ": %.2f s, of it %.2f s of waiting", timeline.total_s,
                  timeline.waited_s());
    add_text(kLeft, top, name + summary, "name");
    for (const double start_s : timeline.step_starts_s)
      add_box(start_s, start_s + timeline.step_s, top + 10, 26, "step");
    for (const RoundsTimeline::Flight& flight : timeline.flights) {
      if (flight.awaited_s > flight.start_s)
        add_box(flight.start_s, flight.awaited_s, top + 42, 20, "hidden");
      add_box(flight.awaited_s, flight.finished_s, top + 42, 20, "waiting");
      add_text((x(flight.start_s) + x(flight.finished_s)) / 2 - 5, top + 78,
               concat(flight.fragment), "small");
    }
    top += kStrip;
  }
  const std::string head =
      concat("<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 988 ",
             static_cast<int>(top + 46), "\" role=\"img\">\n<title>", title,
             "</title>\n<style>text{font:18px sans-serif;fill:#24292f}.name{font-weight:bold}"
             ".small{font-size:17px;fill:#57606a}.step{fill:#3b78b5}.hidden{fill:#e9c98c}"
             ".waiting{fill:#b4690e}.back{fill:#fbfaf7;stroke:#d8d4c9;stroke-width:2}</style>\n"
             "<rect x=\"1\" y=\"1\" width=\"986\" height=\"",
             static_cast<int>(top + 44), "\" rx=\"14\" class=\"back\"/>\n");
  add_text(
      kLeft, top + 4,
      "Blue: inner steps. Below them an average in flight, with its fragment's number:", "small");
  add_text(kLeft, top + 26, "light while training goes on, dark while the worker waits for it.",
           "small");
  return head + out + "</svg>\n";
}

}  // namespace ladder
