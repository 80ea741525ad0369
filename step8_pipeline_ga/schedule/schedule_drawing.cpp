#include "step8_pipeline_ga/schedule/schedule_drawing.hpp"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <limits>
#include <nlohmann/json.hpp>
#include <set>

#include "common/core/check.hpp"
#include "common/core/json.hpp"
#include "step8_pipeline_ga/schedule/schedule_simulation.hpp"

namespace ladder {
namespace {

struct Look {
  char letter;
  char line;  // how long it takes, in text
  const char* name;
};

const Look& look_of(ActionKind kind) {
  static constexpr Look kLooks[] = {{'F', '-', "forward"},
                                    {'B', '=', "backward"},
                                    {'I', '=', "gradient of the input (dgrad)"},
                                    {'W', '~', "gradient of the weights (wgrad)"}};
  return kLooks[static_cast<int>(kind)];
}

// What is drawn of a timeline.
struct Picture {
  Timeline computations;  // without messages, beginning at 0
  TimelineSummary summary;
  double shortest_s = std::numeric_limits<double>::infinity();
  std::set<ActionKind> kinds;
  int chunks_per_stage = 1;
};

int nth_chunk(const Action& action, const Timeline& timeline) {
  return action.chunk / static_cast<int>(timeline.size());
}

Picture picture_of(const Timeline& timeline) {
  Picture picture;
  picture.summary = summarize(timeline);
  double begin_s = std::numeric_limits<double>::infinity();
  for (const std::vector<TimedAction>& stage : timeline) {
    std::vector<TimedAction>& computations = picture.computations.emplace_back();
    for (const TimedAction& timed : stage) {
      if (is_message(timed.action.kind)) continue;
      computations.push_back(timed);
      begin_s = std::min(begin_s, timed.begin_s);
      picture.shortest_s = std::min(picture.shortest_s, timed.end_s - timed.begin_s);
      picture.kinds.insert(timed.action.kind);
      picture.chunks_per_stage =
          std::max(picture.chunks_per_stage, nth_chunk(timed.action, timeline) + 1);
    }
  }
  for (std::vector<TimedAction>& stage : picture.computations) {
    for (TimedAction& timed : stage) timed.begin_s -= begin_s, timed.end_s -= begin_s;
  }
  return picture;
}

std::string rounded(double value) {
  char text[32];
  std::snprintf(text, sizeof text, "%.3g", value);
  return text;
}

std::string time_in_words(const Picture& picture, const std::string& measured_in) {
  const TimelineSummary& summary = picture.summary;
  return concat(rounded(summary.total_s), " ", measured_in,
                "; bubble: ", rounded(100 * summary.bubble_per_ideal), "% of the ideal time, ",
                rounded(100 * summary.bubble_per_total), "% of the total");
}

std::string memory_in_words(const Picture& picture) {
  const std::vector<std::int64_t>& live = picture.summary.live;
  std::string text = "live microbatches per stage:";
  for (std::size_t stage = 0; stage < live.size(); ++stage) {
    text += concat(stage == 0 ? " " : ", ", live[stage]);
  }
  return picture.chunks_per_stage == 1 ? text : text + " (each chunk counts)";
}

// "3", or "3b" on the second chunk of a stage.
std::string number_of(const Action& action, const Picture& picture) {
  const std::string number = std::to_string(action.microbatch);
  if (picture.chunks_per_stage == 1) return number;
  return number + static_cast<char>('a' + nth_chunk(action, picture.computations) % 26);
}

constexpr int kMaxColumns = 160;

// A whole number of columns for the shortest computation, if there is room.
double columns_per_second(const Picture& picture, int max_columns) {
  int longest_label = 0;
  for (const std::vector<TimedAction>& stage : picture.computations) {
    for (const TimedAction& timed : stage) {
      const auto label_size = static_cast<int>(1 + number_of(timed.action, picture).size());
      longest_label = std::max(longest_label, label_size);
    }
  }
  const double room_per_second = max_columns / picture.summary.total_s;
  const double columns =
      std::min<double>(std::floor(room_per_second * picture.shortest_s + 1e-9), longest_label);
  return columns < 1 ? room_per_second : columns / picture.shortest_s;
}

std::string row(const std::vector<TimedAction>& stage, const Picture& picture, double scale) {
  std::string text(static_cast<std::size_t>(std::lround(picture.summary.total_s * scale)), '.');
  for (const TimedAction& timed : stage) {
    const auto begin = static_cast<std::size_t>(std::lround(timed.begin_s * scale));
    const auto end = static_cast<std::size_t>(std::lround(timed.end_s * scale));
    if (begin == end) continue;
    const Look& look = look_of(timed.action.kind);
    std::string label = look.letter + number_of(timed.action, picture);
    if (label.size() > end - begin) label.resize(1);
    label.resize(end - begin, look.line);
    text.replace(begin, end - begin, label);
  }
  return text;
}

}  // namespace

std::string draw_text(const Timeline& timeline, const std::string& measured_in) {
  const Picture picture = picture_of(timeline);
  const std::size_t name_width = concat("stage ", timeline.size()).size();
  const bool is_empty = picture.summary.total_s <= 0;
  const double scale =
      is_empty ? 0 : columns_per_second(picture, kMaxColumns - static_cast<int>(name_width) - 3);
  std::string text;
  for (std::size_t stage = 0; stage < timeline.size(); ++stage) {
    std::string name = concat("stage ", stage);
    name.resize(name_width, ' ');
    text += concat(name, " |", row(picture.computations[stage], picture, scale), "|\n");
  }
  for (const ActionKind kind : picture.kinds) {
    text += concat(look_of(kind).letter, " ", look_of(kind).name, ", ");
  }
  text += "with the number of the microbatch";
  if (picture.chunks_per_stage > 1) text += "; a, b, … the chunk of the stage";
  return concat(text, "; . idle\n", time_in_words(picture, measured_in), "; ",
                memory_in_words(picture), "\n");
}

std::string trace_of(const Timeline& timeline, const std::string& title) {
  const Picture picture = picture_of(timeline);
  Json events = Json::array();
  const auto add = [&](std::size_t stage, const char* name, double begin_s, double end_s,
                       const Json& args) {
    events.push_back({{"ph", "X"},
                      {"pid", stage + 1},
                      {"tid", 1},
                      {"ts", 1e6 * begin_s},
                      {"dur", 1e6 * (end_s - begin_s)},
                      {"cat", "span"},
                      {"name", name},
                      {"args", args}});
  };
  for (std::size_t stage = 0; stage < timeline.size(); ++stage) {
    add(stage, "step", 0, picture.summary.total_s, {{"step", 1}});
    for (const auto& [action, begin_s, end_s] : picture.computations[stage]) {
      add(stage, name_of(action.kind), begin_s, end_s,
          {{"microbatch", action.microbatch}, {"chunk", action.chunk}});
    }
  }
  const std::vector<double> none(timeline.size());  // of each rank
  const Json trace = {{"displayTimeUnit", "ms"},
                      {"otherData",
                       {{"step", title},
                        {"world_size", timeline.size()},
                        {"dropped_events", none},
                        {"clock_error_us", none},
                        {"config", Json::object()}}},
                      {"traceEvents", events}};
  return to_text(trace) + "\n";
}

}  // namespace ladder
