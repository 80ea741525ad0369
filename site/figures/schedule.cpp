// The live figure of pipeline schedules: step 8's own plans, check and simulation.
//
// sources: step8_pipeline_ga/schedule/pipeline_schedule.cpp
// sources: step8_pipeline_ga/schedule/schedule_check.cpp
// sources: step8_pipeline_ga/schedule/schedule_drawing.cpp
// sources: step8_pipeline_ga/schedule/schedule_simulation.cpp
// sources: common/core/json.cpp
//
// A request is what stands in the figure's permalink; what it leaves out has its default:
//
//   schedule=1f1b&stages=4&microbatches=8&chunks=1&cut=0&forward=1&dgrad=1&wgrad=1&message=0&moves=0.4.2_1.3.2
//
// Costs are in slots, and for all chunks of a stage together, so that schedules with any number of
// chunks can be compared. A move "1.3.2" takes the computation at place 3 of stage 1's order to
// place 2; moves are made one after the other.
#include <cmath>
#include <cstdio>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "common/core/check.hpp"
#include "common/core/json.hpp"
#include "site/figures/request.hpp"
#include "site/figures/wasm.hpp"
#include "step8_pipeline_ga/schedule/pipeline_schedule.hpp"
#include "step8_pipeline_ga/schedule/schedule_check.hpp"
#include "step8_pipeline_ga/schedule/schedule_drawing.hpp"
#include "step8_pipeline_ga/schedule/schedule_simulation.hpp"

namespace ladder {
namespace {

// ---- requests ---------------------------------------------------------------------------------

constexpr Setting kSettings[] = {{"stages", 4, 1, 8, 1},       {"microbatches", 8, 1, 24, 1},
                                 {"chunks", 1, 1, 4, 1},       {"cut", 0, 0, 1, 1},
                                 {"forward", 1, 0.25, 4, .25}, {"dgrad", 1, 0.25, 4, .25},
                                 {"wgrad", 1, 0.25, 4, .25},   {"message", 0, 0, 4, .25}};

Request read(const std::string& text) {
  return {text, kSettings, {{"schedule", to_string(Schedule::k1f1b)}, {"moves", ""}}};
}

Schedule schedule_in(const Request& request) {
  const std::string& name = request.text("schedule");
  for (const Schedule each :
       {Schedule::kGpipe, Schedule::k1f1b, Schedule::kInterleaved, Schedule::kZeroBubble}) {
    if (name == to_string(each)) return each;
  }
  throw UsageError(concat("there is no schedule '", name, "'"));
}

// ---- orders -----------------------------------------------------------------------------------

// Messages follow from the order of the computations, and are left out.
PipelinePlan planned(const Request& request) {
  PipelinePlan plan = plan_pipeline(schedule_in(request), static_cast<int>(request.count("stages")),
                                    static_cast<int>(request.count("microbatches")),
                                    static_cast<int>(request.count("chunks")));
  for (std::vector<Action>& actions : plan.stages) {
    std::vector<Action> computations;
    for (Action action : actions) {
      if (is_message(action.kind)) continue;
      const bool is_cut = action.kind == ActionKind::kBackward && request.number("cut") > 0;
      if (is_cut) action.kind = ActionKind::kInputBackward;
      computations.push_back(action);
      action.kind = ActionKind::kWeightBackward;
      if (is_cut) computations.push_back(action);
    }
    actions = computations;
  }
  return plan;
}

int place_in(const std::string& text, const std::string& name, double least, double most) {
  const double value = number_in(text, name, least, most);
  check_usage(value == std::floor(value), name, " is '", text, "': it must be a whole number");
  return static_cast<int>(value);
}

void make_moves(const std::string& moves, PipelinePlan& plan) {
  for (const std::string& move : split(moves, '_')) {
    const std::vector<std::string> numbers = split(move, '.');
    check_usage(numbers.size() == 3, "the move '", move, "' is not STAGE.FROM.TO");
    auto& actions = plan.stages[static_cast<std::size_t>(
        place_in(numbers[0], "the stage of the move " + move, 0, plan.num_stages - 1))];
    const auto last = static_cast<double>(actions.size()) - 1;
    const int from = place_in(numbers[1], "the place in the move " + move, 0, last);
    const int to = place_in(numbers[2], "the place in the move " + move, 0, last);
    const Action moved = actions[static_cast<std::size_t>(from)];
    actions.erase(actions.begin() + from);
    actions.insert(actions.begin() + to, moved);
  }
}

PipelineCosts costs_in(const Request& request) {
  const double chunks = request.number("chunks");
  const double dgrad = request.number("dgrad"), wgrad = request.number("wgrad");
  return {.forward_s = request.number("forward") / chunks,
          .backward_s = (dgrad + wgrad) / chunks,
          .input_backward_s = dgrad / chunks,
          .weight_backward_s = wgrad / chunks,
          .link_s = request.number("message")};
}

// ---- answers ----------------------------------------------------------------------------------

constexpr double kRounding = 1e-9;  // thirds of a slot do not add up exactly

std::string rounded(double value, int num_digits) {
  char text[32];
  std::snprintf(text, sizeof text, "%.*g", num_digits, value);
  return text;
}

std::string in_slots(double slots) {
  return rounded(slots, 4);
}

std::string name_in(const PipelinePlan& plan, Action action) {
  if (plan.chunks_per_stage == 1) action.chunk = 0;  // the stage says it
  return to_string(action);
}

class Picture {
 public:
  Picture(const PipelinePlan& plan, const PipelineCosts& costs)
      : plan_(plan), costs_(costs), timeline_(simulate(plan, costs)), sum_(summarize(timeline_)) {
    for (std::size_t stage = 0; stage < timeline_.size(); ++stage) {
      for (std::size_t i = 0; i < timeline_[stage].size(); ++i) {
        places_[timeline_[stage][i].action] = {stage, i};
      }
    }
  }

  Json answer() const {
    Json stages = Json::array();
    for (std::size_t stage = 0; stage < timeline_.size(); ++stage) {
      stages.push_back({{"live", sum_.live[stage]}, {"ops", ops(stage)}, {"idle", idle(stage)}});
    }
    return {{"slots", sum_.total_s},
            {"percent_of_ideal", rounded(100 * sum_.bubble_per_ideal, 3)},  // as draw_text() does
            {"percent_of_total", rounded(100 * sum_.bubble_per_total, 3)},
            {"text", draw_text(timeline_, "slots")},
            {"stages", stages}};
  }

 private:
  struct Place {
    std::size_t stage, i;
  };
  const TimedAction& at(const Place& place) const { return timeline_[place.stage][place.i]; }

  Json ops(std::size_t stage) const {
    Json ops = Json::array();
    int live = 0;
    double free_s = 0;
    for (std::size_t i = 0; i < timeline_[stage].size(); ++i) {
      const auto& [action, begin_s, end_s] = timeline_[stage][i];
      const bool forgets =
          action.kind == ActionKind::kBackward || action.kind == ActionKind::kWeightBackward;
      live += action.kind == ActionKind::kForward ? 1 : 0;
      Json& op = ops.emplace_back(Json{{"name", name_in(plan_, action)},
                                       {"what", name_of(action.kind)},
                                       {"microbatch", action.microbatch},
                                       {"nth", action.chunk / plan_.num_stages},
                                       {"begin", begin_s},
                                       {"end", end_s},
                                       {"live", live}});
      live -= forgets ? 1 : 0;
      const auto awaited = awaited_by(plan_, action);
      if (awaited) {
        const Place source = places_.at(*awaited);
        op["needs"] = {source.stage, source.i};
      }
      // What it could not begin before.
      if (awaited && begin_s > free_s + kRounding) op["after"] = op["needs"];
      if (i > 0 && begin_s <= free_s + kRounding) op["after"] = {stage, i - 1};
      free_s = end_s;
    }
    return ops;
  }

  // Where it is idle, and why: `before` is the place of the computation that ends it.
  Json idle(std::size_t stage) const {
    Json idle = Json::array();
    double free_s = 0;
    for (std::size_t i = 0; i < timeline_[stage].size(); ++i) {
      const TimedAction& next = timeline_[stage][i];
      if (next.begin_s > free_s + kRounding) {
        idle.push_back({{"begin", free_s},
                        {"end", next.begin_s},
                        {"before", i},
                        {"why", is_idle(stage, free_s, next.begin_s) + why(next.action)}});
      }
      free_s = next.end_s;
    }
    if (sum_.total_s > free_s + kRounding) {
      idle.push_back({{"begin", free_s},
                      {"end", sum_.total_s},
                      {"why", is_idle(stage, free_s, sum_.total_s) +
                                  "It has done all of its work, and other stages have not."}});
    }
    return idle;
  }

  static std::string is_idle(std::size_t stage, double begin_s, double end_s) {
    return concat("Stage ", stage, " is idle from ", in_slots(begin_s), " to ", in_slots(end_s),
                  ". ");
  }

  std::string why(const Action& next) const {
    const Place source = places_.at(awaited_by(plan_, next).value());
    const char* what = next.kind == ActionKind::kForward ? "output" : "gradient";
    const std::string ends = in_slots(at(source).end_s);
    return concat(
        "Its next computation, ", name_in(plan_, next), ", needs the ", what, " from ",
        name_in(plan_, at(source).action), " on stage ", source.stage, ", which ends at ", ends,
        costs_.link_s > 0 ? concat("; the message takes another ", in_slots(costs_.link_s), ".")
                          : ".");
  }

  const PipelinePlan& plan_;
  const PipelineCosts& costs_;
  Timeline timeline_;
  TimelineSummary sum_;
  std::map<Action, Place> places_;
};

}  // namespace
}  // namespace ladder

std::string answer_to(const std::string& text) {
  using namespace ladder;
  const Request request = read(text);
  PipelinePlan plan = planned(request);
  make_moves(request.text("moves"), plan);
  const PipelineCosts costs = costs_in(request);
  const std::string wrong = what_is_wrong_with_order(plan);
  Json answer = wrong.empty() ? Picture(plan, costs).answer() : Json{{"wrong", wrong}};
  answer["schedule"] = to_string(schedule_in(request));
  answer["settings"] = request.settings();
  return to_text(answer);
}
