#include "common/train/clock.hpp"

#include <algorithm>
#include <array>
#include <map>
#include <nlohmann/json.hpp>
#include <tuple>

#include "common/core/check.hpp"

namespace ladder {
namespace {

constexpr int kNumPhases = static_cast<int>(StepPhase::kEnd) + 1;

bool is_backward(char kind) {
  return kind != 'F';
}
double share_of(char kind) {  // of a layer's forward or backward
  return kind == 'I' || kind == 'W' ? 0.5 : 1.0;
}

// What ranks tell each other.
struct Meetings {
  std::map<std::tuple<bool, int, std::int64_t>, double> messages;  // by way, layer, microbatch
  std::map<std::array<std::int64_t, 6>, double> sums;  // by phase, group, elements and rank
};

// One rank's step, carried out until it must wait for another rank, and then further.
class RankClock {
 public:
  RankClock(const StepPlan& plan, std::size_t number, const ComputeSpeed& speed, const Links& links,
            Meetings& meetings, std::vector<ClockSpan>* spans)
      : plan_(plan),
        own_(plan.ranks[number]),
        speed_(speed),
        links_(links),
        meetings_(meetings),
        spans_(spans),
        sharing_(plan.ranks.size() > 1 ? speed.sharing : 1),
        sends_(kNumPhases) {
    for (const PlannedSend& planned : own_.sends)  // others are in between_steps()
      if (planned.send.times >= own_.in_steps)
        sends_[static_cast<std::size_t>(planned.send.phase)][planned.send.layer].push_back(
            &planned);
  }

  bool is_done() const { return leg_ > own_.order.size() + 1 && next_ == events_.size(); }

  // Goes on as far as it can; returns whether that is any further.
  bool go_on() {
    bool has_moved = false;
    while (!is_done()) {
      if (next_ == events_.size()) {
        events_.clear();
        next_ = 0;
        plan_leg(leg_++);
        continue;
      }
      if (!carry_out(events_[next_])) return has_moved;
      ++next_;
      has_moved = true;
    }
    return has_moved;
  }

  // On top of each step, on average, for what is not sent in each of them. The links have some steps
  // to carry it.
  double between_steps(double step_s) const {
    double seconds = 0, pending = 0;
    for (const PlannedSend& planned : own_.sends) {
      const Send& send = planned.send;
      const double share = static_cast<double>(send.times) / static_cast<double>(own_.in_steps);
      if (share >= 1) continue;
      seconds += share * copy_s(planned);
      pending += share * link_seconds(links_, planned.links);
      if (send.wait != Wait::kAtOnce && send.wait != Wait::kForSteps) continue;
      seconds += std::max(0.0, pending - share * send.needed_by * step_s);
      pending = 0;
    }
    return seconds;
  }

  double now_s() const { return now_; }
  double computed_s() const { return computed_; }
  double sharing() const { return sharing_; }

 private:
  // What a rank does next. Seconds: of computing; of a send, those that hide it.
  struct Event {
    enum Kind { kSend, kCompute, kAwaitLayer, kAwaitPhase } kind;
    const PlannedSend* planned = nullptr;
    double seconds = 0;
    bool is_backward = false;
    int layer = -1;
    std::int64_t microbatch = 0;
    const char* what = "";
  };

  // ---- what it does, in its order: leg 0 begins the step, the last one ends it

  void plan_leg(std::size_t leg) {
    if (leg == 0) return plan_phase(StepPhase::kStart);
    if (leg <= own_.order.size()) return plan_action(own_.order[leg - 1]);
    events_.push_back({Event::kAwaitPhase});
    plan_phase(StepPhase::kGradients);
    events_.push_back(
        {.kind = Event::kCompute, .seconds = own_.updated * speed_.update_s, .what = "update"});
    events_.push_back(
        {.kind = Event::kCompute, .seconds = own_.normed * speed_.norm_s, .what = "norm"});
    plan_phase(StepPhase::kUpdated);
    plan_phase(StepPhase::kEnd);
  }

  const std::vector<const PlannedSend*>& sends_of(StepPhase phase, int layer) {
    return sends_[static_cast<std::size_t>(phase)][layer];
  }

  void plan_phase(StepPhase phase) {
    for (const PlannedSend* planned : sends_of(phase, 0))
      for (std::int64_t i = 0; i < planned->send.times / own_.in_steps; ++i)
        events_.push_back({.kind = Event::kSend, .planned = planned});
    events_.push_back({Event::kAwaitPhase});
  }

  void plan_action(const ClockAction& action) {
    const bool backward = is_backward(action.kind);
    std::vector<std::size_t> layers = plan_.chunks[action.chunk];
    if (backward) std::ranges::reverse(layers);
    for (const std::size_t layer : layers) {
      const double whole = backward ? speed_.backward_s[layer] : speed_.forward_s[layer];
      const double seconds = share_of(action.kind) * whole / plan_.tensor_ranks;
      const Event compute = {.kind = Event::kCompute,
                             .seconds = seconds,
                             .is_backward = backward,
                             .layer = static_cast<int>(layer),
                             .microbatch = action.microbatch,
                             .what = action.kind == 'W' ? "weights"
                                     : backward         ? "backward"
                                                        : "forward"};
      if (action.kind == 'W') {  // sends nothing
        events_.push_back(compute);
      } else {
        plan_layer(compute, action.kind == 'B' ? seconds / 2 : 0);
      }
    }
  }

  // Of one microbatch, with what is sent before and after it. Each sum that travels while gradients
  // of weights are computed has its share of weights_s.
  void plan_layer(const Event& compute, double weights_s) {
    const auto before =
        compute.is_backward ? StepPhase::kBeforeBackward : StepPhase::kBeforeForward;
    const auto after = compute.is_backward ? StepPhase::kAfterBackward : StepPhase::kAfterForward;
    const auto hidden = std::ranges::count_if(
        sends_of(after, compute.layer),
        [](const PlannedSend* each) { return each->send.wait == Wait::kForWeights; });
    Event send = compute;
    send.kind = Event::kSend;
    send.seconds = weights_s / sharing_ / static_cast<double>(std::max<std::int64_t>(1, hidden));
    const auto plan_sends = [&](StepPhase phase) {
      for (const PlannedSend* planned : sends_of(phase, compute.layer)) {
        const bool is_of_each = planned->send.times > own_.in_steps;
        if (!is_of_each && compute.microbatch != plan_.microbatches - 1) continue;
        send.planned = planned;
        events_.push_back(send);
      }
    };
    plan_sends(before);
    Event await = compute;
    await.kind = Event::kAwaitLayer;
    events_.push_back(await);
    events_.push_back(compute);
    plan_sends(after);
  }

  // ---- carrying it out: false if another rank must come first

  bool carry_out(const Event& event) {
    switch (event.kind) {
      case Event::kSend:
        return carry_out_send(event);
      case Event::kCompute:
        compute(event);
        return true;
      case Event::kAwaitPhase:
        wait(phase_done_);
        return true;
      case Event::kAwaitLayer:
        if (const auto found = awaited_.find({event.is_backward, event.layer});
            found != awaited_.end()) {
          wait(found->second);
          awaited_.erase(found);
        }
        return true;
    }
    return true;
  }

  void wait(double until) { now_ = std::max(now_, until); }

  void compute(const Event& event) {
    const double seconds = event.seconds / sharing_;
    if (spans_ != nullptr && seconds > 0)
      spans_->push_back({own_.rank, ClockSpan::kComputing, now_, now_ + seconds, event.what,
                         event.layer, event.microbatch});
    now_ += seconds;
    computed_ += seconds;
  }

  double copy_s(const PlannedSend& planned) const {
    const auto messages = static_cast<double>(planned.traffic.messages);
    return messages > 0 ? speed_.call_s + messages * speed_.message_s +
                              static_cast<double>(planned.traffic.bytes_sent) * speed_.byte_s
                        : 0;
  }

  // Returns when it will be done: first inside, then outside.
  double start(const Event& event) {
    const PlannedSend& planned = *event.planned;
    double done = now_, hidden = planned.send.wait == Wait::kForWeights ? event.seconds : 0;
    const auto pass = [&](ClockSpan::Lane lane, const Link& link, const LinkUse& use,
                          double& free) {
      if (use.rounds == 0) return;
      const double seconds = link_seconds(link, use), left = std::max(0.0, seconds - hidden);
      hidden -= seconds - left;
      const double begin = std::max(done, free);
      done = free = begin + left;
      if (spans_ != nullptr)
        spans_->push_back({own_.rank, lane, begin, done, to_string(planned.send.operation),
                           planned.send.layer, event.microbatch, use.bytes});
    };
    pass(ClockSpan::kInside, links_.inside, planned.links.inside, inside_free_);
    pass(ClockSpan::kOutside, links_.outside, planned.links.outside, outside_free_);
    now_ += copy_s(planned);
    return std::max(now_, done);
  }

  bool carry_out_send(const Event& event) {
    const Send& send = event.planned->send;
    const bool has_way =
        send.phase >= StepPhase::kBeforeForward && send.phase <= StepPhase::kAfterBackward;
    if (send.operation == CommOp::kRecv && !has_way) {  // all send equally much
      wait(latest_[CommOp::kSend]);
      return true;
    }
    if (send.operation == CommOp::kRecv) {
      const auto found = meetings_.messages.find({event.is_backward, send.layer, event.microbatch});
      if (found == meetings_.messages.end()) return false;
      wait(found->second);
      return true;
    }
    if (!joins_) {  // it may be the second time that it is asked for
      if (send.wait == Wait::kForNext) wait(latest_[send.operation]);
      done_ = latest_[send.operation] = start(event);
    }
    if (send.operation == CommOp::kSend) {
      const int next = send.layer + (event.is_backward ? -1 : 1);
      meetings_.messages[{event.is_backward, next, event.microbatch}] = done_;
    } else if (send.wait == Wait::kForLayer) {
      awaited_[{event.is_backward, send.needed_by}] = done_;
    } else if (send.wait == Wait::kAtOnce || send.wait == Wait::kForWeights) {
      joins_ = !join(send);
      return !joins_;
    } else {
      phase_done_ = std::max(phase_done_, done_);
    }
    return true;
  }

  // Waits, also for the others of the group that are here: the slowest decides.
  bool join(const Send& send) {
    double done = done_;
    if (send.group.size > 1) {
      std::vector<int> here;
      for (const RankPlan& each : plan_.ranks)
        for (int i = 0; i < send.group.size; ++i)
          if (send.group.rank(i) == each.rank) here.push_back(each.rank);
      const auto key = [&](int rank) {
        return std::array<std::int64_t, 6>{static_cast<int>(send.phase),
                                           send.group.first,
                                           send.group.stride,
                                           send.group.size,
                                           send.numel,
                                           rank};
      };
      if (here.size() > 1) meetings_.sums[key(own_.rank)] = done_;
      for (const int rank : here) {
        if (here.size() == 1) break;
        const auto found = meetings_.sums.find(key(rank));
        if (found == meetings_.sums.end()) return false;
        done = std::max(done, found->second);
      }
    }
    wait(done);
    return true;
  }

  const StepPlan& plan_;
  const RankPlan& own_;
  const ComputeSpeed& speed_;
  const Links& links_;
  Meetings& meetings_;
  std::vector<ClockSpan>* spans_;
  double sharing_;
  std::vector<std::map<int, std::vector<const PlannedSend*>>> sends_;  // by phase and layer

  std::vector<Event> events_;
  std::size_t leg_ = 0, next_ = 0;
  double now_ = 0, computed_ = 0, phase_done_ = 0, inside_free_ = 0, outside_free_ = 0;
  double done_ = 0;     // of the newest send
  bool joins_ = false;  // and waits for others that take part in it
  std::map<CommOp, double> latest_;
  std::map<std::pair<bool, int>, double> awaited_;  // by way and layer
};

// ---- from JSON ----------------------------------------------------------------------------------

template <class Enum>
Enum named(const std::string& name, int count, const char* (*name_of)(Enum)) {
  for (int i = 0; i < count; ++i)
    if (name == name_of(static_cast<Enum>(i))) return static_cast<Enum>(i);
  throw CheckError(concat("facts of a step: '", name, "' is unknown"));
}

PlannedSend planned_send_of(const Json& json) {
  const Json& group = json.at("group");
  const auto use_of = [&](const char* name) {
    return LinkUse{json.at(name).at("rounds"), json.at(name).at("bytes")};
  };
  return {.send = {.phase = named<StepPhase>(json.at("phase"), kNumPhases, to_string),
                   .layer = json.at("layer"),
                   .operation = named<CommOp>(json.at("operation"), kNumCommOps, to_string),
                   .numel = json.at("elements"),
                   .wait = named<Wait>(json.at("wait"), static_cast<int>(Wait::kForNothing) + 1,
                                       to_string),
                   .needed_by = json.at("needed_by"),
                   .group = {group.at(0), group.at(1), group.at(2), group.at(3)},
                   .times = json.at("times")},
          .traffic = {.bytes_sent = json.at("bytes_sent"), .messages = json.at("messages")},
          .links = {use_of("inside"), use_of("outside")}};
}

// Forward and backward of each microbatch.
std::vector<ClockAction> one_after_the_other(std::int64_t microbatches) {
  std::vector<ClockAction> order;
  for (std::int64_t m = 0; m < microbatches; ++m) {
    order.push_back({'F', 0, m});
    order.push_back({'B', 0, m});
  }
  return order;
}

// A schedule is one flush, of which a step may have several. "B0.2": backward of chunk 0 and
// microbatch 2.
std::vector<ClockAction> order_of(const Json& stage, std::int64_t microbatches) {
  std::vector<ClockAction> flush, order;
  std::int64_t length = 0;
  for (const Json& action : stage) {
    const std::string text = action;
    const std::size_t dot = text.find('.');
    flush.push_back(
        {text.at(0), std::stoul(text.substr(1, dot - 1)), std::stoll(text.substr(dot + 1))});
    length = std::max(length, flush.back().microbatch + 1);
  }
  for (std::int64_t start = 0; length > 0 && start < microbatches; start += length)
    for (ClockAction action : flush) {
      action.microbatch += start;
      order.push_back(action);
    }
  return order;
}

}  // namespace

StepPlan step_plan_of(const Json& facts) try {
  StepPlan plan = {.step = facts.at("step"),
                   .microbatches = facts.at("microbatches"),
                   .tensor_ranks = facts.value("tensor_ranks", 1)};
  const Json& schedule = facts.at("schedule");
  if (!schedule.is_null()) plan.chunks = schedule.at("chunks");
  if (schedule.is_null())
    for (std::size_t layer = 0; layer < facts.at("layers").size(); ++layer)
      plan.chunks.resize(1), plan.chunks[0].push_back(layer);
  for (const Json& rank : facts.at("ranks")) {
    RankPlan own = {.rank = rank.at("rank"),
                    .in_steps = rank.at("in_steps"),
                    .updated = rank.at("updated"),
                    .normed = rank.at("normed")};
    for (const Json& send : rank.at("plan")) own.sends.push_back(planned_send_of(send));
    own.order = schedule.is_null()
                    ? one_after_the_other(plan.microbatches)
                    : order_of(schedule.at("stages").at(plan.ranks.size()), plan.microbatches);
    plan.ranks.push_back(std::move(own));
  }
  return plan;
} catch (const Json::exception& error) {
  throw CheckError(concat("facts of a step: ", json_problem(error.what())));
}

ComputeSpeed said_speed(const Json& facts, double tflops, double gbytes) try {
  const Json& config = facts.at("config");
  const double tokens =
      config.at("micro-batch-size").get<double>() * config.at("context").get<double>();
  const auto seconds = [&](const Json& flops) {
    return flops.get<double>() * tokens / (tflops * 1e12);
  };
  ComputeSpeed speed = {.update_s = facts.at("update_bytes").get<double>() / (gbytes * 1e9),
                        .norm_s = facts.at("norm_bytes").get<double>() / (gbytes * 1e9)};
  for (const Json& layer : facts.at("layers")) {
    speed.forward_s.push_back(seconds(layer.at("forward_flops")));
    speed.backward_s.push_back(seconds(layer.at("backward_flops")));
  }
  return speed;
} catch (const Json::exception& error) {
  throw CheckError(concat("facts of a step: ", json_problem(error.what())));
}

Estimate estimate(const StepPlan& plan, const ComputeSpeed& speed, const Links& links,
                  std::vector<ClockSpan>* spans) {
  Meetings meetings;
  std::vector<RankClock> ranks;
  for (std::size_t i = 0; i < plan.ranks.size(); ++i)
    ranks.emplace_back(plan, i, speed, links, meetings, spans);
  for (bool has_moved = true; has_moved;) {
    has_moved = false;
    for (RankClock& rank : ranks) has_moved |= rank.go_on();
  }
  const auto num_waiting = std::ranges::count_if(ranks, [](const auto& r) { return !r.is_done(); });
  check(num_waiting == 0, plan.step, ": by its plan, ", num_waiting, " rank(s) wait forever");
  const auto slowest = std::ranges::max_element(ranks, {}, &RankClock::computed_s);
  double computed_s = 0;
  for (const RankClock& rank : ranks) computed_s += rank.computed_s();
  // No core is idle in a bubble.
  const double at_work = slowest->sharing() * computed_s / static_cast<double>(ranks.size());
  const double step_s = std::max(ranks[0].now_s(), at_work) + speed.rest_s;
  const double seconds = step_s + ranks[0].between_steps(step_s);
  return {seconds, std::max(0.0, seconds - slowest->computed_s() - speed.rest_s)};
}

}  // namespace ladder
