// For the judge, part 1: is this plan 1F1B? Needs no ranks: a plan is a value.
#pragma once

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "common/testing/part_checks.hpp"
#include "step8_pipeline_ga/schedule/pipeline_schedule.hpp"
#include "step8_pipeline_ga/schedule/schedule_check.hpp"
#include "step8_pipeline_ga/schedule/schedule_simulation.hpp"

namespace ladder::step8 {

class PlanChecks : public PartChecks {
 public:
  explicit PlanChecks(Communicator& comm) : PartChecks("part 1", "pipeline_schedule.cpp", comm) {}

  // Small enough to be written down.
  void computes_in_this_order() {
    examine_plans([&] {
      expect_order(2, 3, {"F0 F1 B0 F2 B1 B2", "F0 B0 F1 B1 F2 B2"});
      expect_order(
          3, 4, {"F0 F1 F2 B0 F3 B1 B2 B3", "F0 F1 B0 F2 B1 F3 B2 B3", "F0 B0 F1 B1 F2 B2 F3 B3"});
      expect_order(4, 2, {"F0 F1 B0 B1", "F0 F1 B0 B1", "F0 F1 B0 B1", "F0 B0 F1 B1"});
      expect_order(1, 2, {"F0 B0 F1 B1"});
    });
  }

  // What all others cost: the time of GPipe, and p − r microbatches.
  void costs_what_it_should() {
    examine_plans([&] {
      for (int p = 1; p <= 5; ++p) {
        for (std::int64_t m = 1; m <= 9; ++m) {
          if (begin(Schedule::k1f1b, p, m, 1)) expect_costs(Schedule::k1f1b);
        }
      }
      if (begin(Schedule::k1f1b, 16, 24, 1)) expect_costs(Schedule::k1f1b);
    });
  }

  // They are made from the same parts.
  void leaves_the_others_right() {
    examine_plans([&] {
      if (begin(Schedule::kGpipe, 3, 4, 1)) expect_costs(Schedule::kGpipe);
      if (begin(Schedule::kInterleaved, 3, 6, 2)) expect_costs(Schedule::kInterleaved);
      if (begin(Schedule::kZeroBubble, 3, 6, 1)) expect_costs(Schedule::kZeroBubble);
    });
  }

 private:
  static constexpr PipelineCosts kTwice = {};  // a backward takes as long as two forwards

  template <class Part>
  void examine_plans(Part part) {
    examine_part("the plans", [&](Communicator& /*comm*/) { part(); });
  }

  void say(const std::string& what) {
    fault(concat(name_, ", ", to_string(plan_schedule_), " with ", plural(p_, "stage"), " and ",
                 plural(m_, "microbatch"), ": ", what));
    is_over_ = true;
  }
  static std::string plural(std::int64_t n, const std::string& what) {
    return concat(n, " ", what, n == 1 ? "" : what.back() == 'h' ? "es" : "s");
  }

  // Makes plan_. False: there is nothing more to look at.
  bool begin(Schedule schedule, int p, std::int64_t m, int v) {
    if (is_over_) return false;
    plan_schedule_ = schedule;
    p_ = p, m_ = m;
    try {
      plan_ = plan_pipeline(schedule, p, m, v);
    } catch (const CheckError& error) {
      if (std::string(error.what()).starts_with("not implemented")) throw;
      say(concat(error.what(), ": head_start() and take_turns() decide the order"));
      return false;
    }
    const std::string wrong = what_is_wrong_with(plan_);
    if (!wrong.empty()) say(wrong);
    const std::string other = wrong.empty() ? name_of_another() : "";
    if (!other.empty()) say("a right plan, but " + other);
    return !is_over_;
  }

  // "" unless the plan is obviously another schedule's than the one that was asked for.
  std::string name_of_another() const {
    const bool is_whole = plan_.chunks_per_stage == 1 && !has(ActionKind::kWeightBackward);
    if (plan_.num_stages != p_ || plan_.num_microbatches != m_)
      return concat("for ", plural(plan_.num_stages, "stage"), " and ",
                    plural(plan_.num_microbatches, "microbatch"));
    if (plan_schedule_ != Schedule::k1f1b) return "";
    if (plan_.chunks_per_stage > 1)
      return concat("interleaved: ", plan_.chunks_per_stage, " chunks per stage instead of one");
    if (!is_whole) return "a zero-bubble one: it cuts backwards in two, I and W";
    if (m_ > 1 && std::all_of(plan_.stages.begin(), plan_.stages.end(), forwards_first))
      return concat("GPipe: no backward before the last forward, so stage ", p_ - 1, " remembers ",
                    m_, " microbatches, not 1");
    return "";
  }
  bool has(ActionKind kind) const {
    return std::any_of(plan_.stages.begin(), plan_.stages.end(),
                       [&](const std::vector<Action>& stage) {
                         return std::any_of(stage.begin(), stage.end(),
                                            [&](const Action& a) { return a.kind == kind; });
                       });
  }
  static bool forwards_first(const std::vector<Action>& stage) {
    const auto is_backward = [](const Action& a) { return a.kind == ActionKind::kBackward; };
    const auto is_forward = [](const Action& a) { return a.kind == ActionKind::kForward; };
    return std::none_of(std::find_if(stage.begin(), stage.end(), is_backward), stage.end(),
                        is_forward);
  }

  void expect_order(int p, std::int64_t m, const std::vector<std::string>& wanted) {
    if (!begin(Schedule::k1f1b, p, m, 1)) return;
    for (std::size_t stage = 0; stage < wanted.size(); ++stage) {
      const std::string found = computations(stage);
      if (found == wanted[stage]) continue;
      say(concat("stage ", stage, " computes ", found, ", not ", wanted[stage]));
      break;
    }
    expect_costs(Schedule::k1f1b);
  }
  std::string computations(std::size_t stage) const {
    std::string text;
    for (Action action : plan_.stages[stage]) {
      if (is_message(action.kind)) continue;
      action.chunk = 0;
      text += (text.empty() ? "" : " ") + to_string(action);
    }
    return text;
  }

  void expect_costs(Schedule schedule) {
    const TimelineSummary summary = summarize(simulate(plan_, kTwice));
    const int v = plan_.chunks_per_stage;
    for (int stage = 0; stage < p_; ++stage) {
      const std::int64_t found = summary.live[static_cast<std::size_t>(stage)];
      const std::int64_t wanted = most_live_microbatches(schedule, p_, m_, v, stage);
      if (found == wanted) continue;
      say(concat("stage ", stage, " remembers ", plural(found, "microbatch"), " at once, not ",
                 schedule == Schedule::k1f1b ? "min(m, p - r) = " : "", wanted,
                 found > wanted ? ": its first backward comes too late"
                                : ": its first backward comes too early"));
      break;
    }
    const double wanted_s = formula_s(schedule, p_, m_, v, kTwice);
    if (summary.total_s != wanted_s)
      say(concat("it takes ", summary.total_s, " forwards' time, not ",
                 schedule == Schedule::k1f1b ? "(m + p - 1)(1 + 2) = " : "", wanted_s,
                 ": stages wait for one another"));
  }

  Schedule plan_schedule_ = Schedule::k1f1b;
  PipelinePlan plan_;
  int p_ = 1;
  std::int64_t m_ = 1;
  bool is_over_ = false;
};

}  // namespace ladder::step8
