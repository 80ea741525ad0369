#include "step8_pipeline_ga/schedule/schedule_drawing.hpp"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <limits>
#include <set>
#include <sstream>

#include "common/core/check.hpp"
#include "step8_pipeline_ga/schedule/schedule_simulation.hpp"

namespace ladder {
namespace {

struct Look {
  char letter;
  char line;  // how long it takes, in text
  const char* name;
  int color;  // Paul Tol's light palette, for black numbers
};

const Look& look_of(ActionKind kind) {
  static constexpr Look kLooks[] = {{'F', '-', "forward", 0x77aadd},
                                    {'B', '=', "backward", 0xee8866},
                                    {'I', '=', "input half of a backward", 0xffaabb},
                                    {'W', '~', "weight half of a backward", 0xeedd88}};
  return kLooks[static_cast<int>(kind)];
}

// What both drawings need to know of a timeline.
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

// ---- text ----

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

// ---- SVG ----

namespace {

// Text is large enough for a telephone, and the background makes it readable on a dark page.
constexpr double kLeft = 84, kTop = 56, kPlotWidth = 896, kRowHeight = 34, kRowGap = 6;
constexpr double kDigitWidth = 10;  // of a font of 18 px

// Mixed with white, more for later chunks.
std::string color_of(ActionKind kind, int nth_chunk, int chunks_per_stage) {
  const double white = 0.7 * nth_chunk / chunks_per_stage;
  int mixed = 0;
  for (const int shift : {16, 8, 0}) {
    const int channel = look_of(kind).color >> shift & 0xff;
    mixed |= static_cast<int>(std::lround(channel + white * (0xff - channel))) << shift;
  }
  char text[8];
  std::snprintf(text, sizeof text, "#%06x", static_cast<unsigned>(mixed));
  return text;
}

std::string escaped(const std::string& text) {
  std::string safe;
  for (const char c : text) {
    safe += c == '&' ? "&amp;" : c == '<' ? "&lt;" : c == '>' ? "&gt;" : std::string(1, c);
  }
  return safe;
}

std::string label(double x, double y, const char* anchor, const std::string& text) {
  return concat("<text x=\"", x, "\" y=\"", y, "\" text-anchor=\"", anchor, "\">", escaped(text),
                "</text>\n");
}

std::string box(double x, double y, double width, double height, const std::string& fill) {
  return concat("<rect x=\"", x, "\" y=\"", y, "\" width=\"", width, "\" height=\"", height,
                "\" fill=\"", fill, "\"/>\n");
}

// A round number of seconds that divides the axis into at most ten parts.
double tick_s(double total_s) {
  const double power = std::pow(10, std::floor(std::log10(total_s / 10)));
  for (const double step : {1, 2, 5}) {
    if (total_s / (step * power) <= 10) return step * power;
  }
  return 10 * power;
}

std::string axis(const Picture& picture, double bottom, const std::string& measured_in) {
  const double step_s = tick_s(picture.summary.total_s);
  const auto num_steps = std::lround(std::floor(picture.summary.total_s / step_s + 1e-9));
  std::string text;
  for (long i = 0; i <= num_steps; ++i) {
    const double time_s = static_cast<double>(i) * step_s;
    const double x = kLeft + time_s * kPlotWidth / picture.summary.total_s;
    text += concat("<line x1=\"", x, "\" y1=\"", kTop - 4, "\" x2=\"", x, "\" y2=\"", bottom,
                   "\" class=\"grid\"/>\n");
    text += label(x, bottom + 20, i == 0 ? "start" : "middle",
                  rounded(time_s) + (i == 0 ? " " + measured_in : ""));
  }
  return text;
}

// The microbatch and the chunk, the microbatch alone (the color tells the chunk), or nothing.
std::string number_in(double width, const Action& action, const Picture& picture) {
  for (const std::string& text : {number_of(action, picture), std::to_string(action.microbatch)}) {
    if (width >= kDigitWidth * static_cast<double>(text.size()) + 2) return text;
  }
  return "";
}

std::string boxes(const Picture& picture) {
  const double scale = kPlotWidth / picture.summary.total_s;
  std::string text;
  double y = kTop;
  for (std::size_t stage = 0; stage < picture.computations.size(); ++stage) {
    text += label(kLeft - 8, y + 23, "end", concat("stage ", stage));
    for (const TimedAction& timed : picture.computations[stage]) {
      const int nth = nth_chunk(timed.action, picture.computations);
      const double x = kLeft + timed.begin_s * scale;
      const double width = (timed.end_s - timed.begin_s) * scale;
      const std::string number = number_in(width, timed.action, picture);
      text +=
          box(x, y, width, kRowHeight, color_of(timed.action.kind, nth, picture.chunks_per_stage));
      if (number.empty()) continue;
      text += concat("<text class=\"number\" x=\"", x + width / 2, "\" y=\"", y + 23, "\">", number,
                     "</text>\n");
    }
    y += kRowHeight + kRowGap;
  }
  return text;
}

std::string legend(const Picture& picture, double y) {
  std::string text;
  double x = kLeft;
  for (const ActionKind kind : picture.kinds) {
    for (int nth = 0; nth < picture.chunks_per_stage; ++nth, x += 16) {
      text += box(x, y - 13, 14, 14, color_of(kind, nth, picture.chunks_per_stage));
    }
    const std::string name = look_of(kind).name;
    text += label(x + 4, y, "start", name);
    x += 28 + 9.0 * static_cast<double>(name.size());
  }
  if (picture.chunks_per_stage > 1) {
    text += label(x, y, "start", "shades and a, b, …: chunks of a stage");
  }
  return text;
}

}  // namespace

std::string draw_svg(const Timeline& timeline, const std::string& title,
                     const std::string& measured_in) {
  const Picture picture = picture_of(timeline);
  const double bottom = kTop + static_cast<double>(timeline.size()) * (kRowHeight + kRowGap);
  const double width = kLeft + kPlotWidth + 20, height = bottom + 124;
  const std::string time = time_in_words(picture, measured_in), memory = memory_in_words(picture);
  std::string text = concat(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 ", width, " ", height,
      "\" role=\"img\"><title>", escaped(title), "</title>\n<desc>When each of the ",
      timeline.size(), " stages of a pipeline computes which microbatch, one row per stage. ",
      escaped(time + "; " + memory), ".</desc>\n<style>text{font:18px sans-serif;fill:#222}",
      ".title{font-size:20px;font-weight:bold}.grid{stroke:#999;stroke-opacity:.5}",
      "rect{stroke:#222;stroke-width:.5}.number{fill:#111;text-anchor:middle}</style>\n",
      box(0, 0, width, height, "#fbfaf7"), "<text class=\"title\" x=\"", kLeft, "\" y=\"34\">",
      escaped(title), "</text>\n");
  if (picture.summary.total_s > 0) text += axis(picture, bottom, measured_in) + boxes(picture);
  return concat(text, legend(picture, bottom + 54), label(kLeft, bottom + 84, "start", time),
                label(kLeft, bottom + 108, "start", memory), "</svg>\n");
}

}  // namespace ladder
