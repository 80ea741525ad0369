#include "common/comm/checking/call_table.hpp"

#include <algorithm>
#include <map>
#include <set>

#include "common/core/check.hpp"

namespace ladder {
namespace {

using State = RankCalls::State;

constexpr std::size_t kStartWidth = 12, kGap = 3;  // of a line, between columns

bool is_message(const Call& call) {
  return call.sequence.starts_with("from ");
}

std::string at_place(const Call& call) {
  return call.where.empty() ? call.what : concat(call.what, ", at ", call.where);
}

// "call 3 of all ranks", "message 1 from rank 0 to rank 1 with tag 5".
std::string name_of(const Call& call) {
  return concat(is_message(call) ? "message " : "call ", call.number, " ", call.sequence);
}

// "rank 0", "ranks 1 and 2", "ranks 0, 1 and 3".
std::string name_of(const std::vector<int>& ranks) {
  std::string text = ranks.size() == 1 ? "rank " : "ranks ";
  for (std::size_t i = 0; i < ranks.size(); ++i)
    text += concat(i == 0 ? "" : i + 1 == ranks.size() ? " and " : ", ", ranks[i]);
  return text;
}

const Call* find(const std::vector<Call>& calls, const Call& wanted) {
  const auto found = std::find_if(calls.begin(), calls.end(),
                                  [&](const Call& call) { return call.is_same_place(wanted); });
  return found == calls.end() ? nullptr : &*found;
}

// One call of the row's sequence and number on each rank; null where a rank has none.
using Row = std::vector<const Call*>;

const Call& first_of(const Row& row) {
  return **std::find_if(row.begin(), row.end(), [](const Call* call) { return call != nullptr; });
}

// Each rank's calls are in rows from top to bottom, newest last. A call that no rank before it has
// comes right before this rank's next one.
std::vector<Row> align(const std::vector<RankCalls>& ranks) {
  std::vector<Row> rows;
  for (std::size_t r = 0; r < ranks.size(); ++r) {
    std::ptrdiff_t below = std::ssize(rows);
    const std::vector<Call>& calls = ranks[r].newest;
    for (auto call = calls.rbegin(); call != calls.rend(); ++call) {
      const auto end = rows.begin() + below;
      auto row = std::find_if(rows.begin(), end, [&](const Row& other) {
        return first_of(other).is_same_place(*call);
      });
      if (row == end) row = rows.insert(end, Row(ranks.size()));
      (*row)[r] = &*call;
      below = row - rows.begin();
    }
  }
  return rows;
}

std::string cell_of(const Call& call) {
  const bool is_of_part = call.sequence.starts_with("of split");
  return concat("#", call.number, " ", call.what, is_of_part ? concat(", ", call.sequence) : "",
                "  ", call.where.substr(call.where.rfind('/') + 1));
}

// The ranks part here: what they call differs, or some of them wait for others that never come.
bool is_parted(const Row& row, const std::vector<RankCalls>& ranks) {
  const Call& call = first_of(row);
  return std::any_of(ranks.begin(), ranks.end(), [&](const RankCalls& rank) {
    const bool is_stuck = rank.state == State::kWaits && !rank.waits_for.empty();
    return (is_stuck || rank.state == State::kParts) && rank.current.is_same_place(call);
  });
}

std::string state_line(const RankCalls& rank) {
  switch (rank.state) {
    case State::kWaits:
      return rank.waits_for.empty()
                 ? concat("waits in #", rank.current.number)
                 : concat("waits in #", rank.current.number, " for ", name_of(rank.waits_for));
    case State::kParts:
      return "stopped there";
    case State::kFailed:
      return "has failed";
    case State::kEnded:
      return "has ended";
    case State::kRuns:
      return "has called nothing since";
  }
  return "";
}

}  // namespace

std::string describe_parting(const Call& call, const std::vector<RankCalls>& ranks) {
  std::map<std::string, std::vector<int>> who_calls;
  for (std::size_t r = 0; r < ranks.size(); ++r) {
    if (const Call* const found = find(ranks[r].newest, call); found != nullptr)
      who_calls[at_place(*found)].push_back(static_cast<int>(r));
  }
  std::vector<std::pair<std::vector<int>, std::string>> in_order;
  for (const auto& [what, who] : who_calls) in_order.emplace_back(who, what);
  std::sort(in_order.begin(), in_order.end());
  std::string text = concat(
      "the ranks part at ", name_of(call), ", ",
      call.step > 0 ? concat("in optimizer step ", call.step) : "before the first optimizer step",
      ":\n");
  for (const auto& [who, what] : in_order) text += concat("  ", name_of(who), ": ", what, "\n");
  return text;
}

std::string describe_waits(const std::vector<RankCalls>& ranks) {
  std::string text;
  std::set<int> waited_for;
  for (std::size_t r = 0; r < ranks.size(); ++r) {
    const RankCalls& rank = ranks[r];
    if (rank.state != State::kWaits || rank.waits_for.empty()) continue;
    text += concat("rank ", r, " waits for ", name_of(rank.waits_for), " in ",
                   name_of(rank.current), ": ", at_place(rank.current),
                   rank.waited_s.empty() ? "" : concat(", for ", rank.waited_s, " s"), "\n");
    waited_for.insert(rank.waits_for.begin(), rank.waits_for.end());
  }
  for (const int r : waited_for) {
    const RankCalls& rank = ranks[static_cast<std::size_t>(r)];
    if (rank.state == State::kEnded) text += concat("rank ", r, " has ended\n");
    if (rank.state == State::kFailed) text += concat("rank ", r, " has failed\n");
    if (rank.state != State::kRuns) continue;
    const std::string last = rank.newest.empty() ? "at all"
                                                 : concat("since ", name_of(rank.newest.back()),
                                                          ", ", at_place(rank.newest.back()));
    text += concat("rank ", r, " has called nothing ", last,
                   ": it computes, is frozen, waits for something else, or has died\n");
  }
  return text;
}

std::string side_by_side(const std::vector<RankCalls>& ranks) {
  const std::vector<Row> rows = align(ranks);
  std::map<std::vector<std::string>, std::vector<int>> who_has;  // a column: its ranks
  for (std::size_t r = 0; r < ranks.size(); ++r) {
    std::vector<std::string> column;
    for (const Row& row : rows) column.push_back(row[r] != nullptr ? cell_of(*row[r]) : "");
    column.push_back(state_line(ranks[r]));
    who_has[column].push_back(static_cast<int>(r));
  }
  std::vector<std::pair<std::vector<int>, std::vector<std::string>>> columns;
  for (const auto& [column, who] : who_has) columns.emplace_back(who, column);
  std::sort(columns.begin(), columns.end());

  std::string text;
  const auto add_line = [&](const std::string& start, const auto& cell_in) {
    std::string line = start;
    line.resize(kStartWidth, ' ');
    std::size_t end = kStartWidth;
    for (const auto& [who, column] : columns) {
      line += cell_in(who, column);
      std::size_t width = name_of(who).size();
      for (const std::string& cell : column) width = std::max(width, cell.size());
      end += width + kGap;
      line.resize(end, ' ');
    }
    line.erase(line.find_last_not_of(' ') + 1);
    text += text.empty() ? line : concat("\n", line);
  };
  add_line("", [](const auto& who, const auto&) { return name_of(who); });
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const Call& call = first_of(rows[i]);
    const char* const mark = is_parted(rows[i], ranks) ? "> " : "  ";
    add_line(call.step > 0 ? concat(mark, "step ", call.step) : mark,
             [i](const auto&, const auto& column) { return column[i]; });
  }
  add_line("", [](const auto&, const auto& column) { return column.back(); });
  return text;
}

}  // namespace ladder
