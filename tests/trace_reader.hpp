// For tests: reads back what --trace has written, and asks what was going on when.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "common/core/check.hpp"
#include "common/core/json.hpp"
#include "common/train/checkpoint/disk.hpp"

namespace ladder {

// A range on a lane, in nanoseconds.
struct TraceSlice {
  int lane = 0;
  std::string name;
  std::int64_t begin_ns = 0, end_ns = 0;
  Json args;

  std::int64_t number(const char* key) const { return args.at(key).get<std::int64_t>(); }
  std::string text(const char* key) const { return args.at(key).get<std::string>(); }
  bool is_around(const TraceSlice& other) const {
    return begin_ns <= other.begin_ns && other.end_ns <= end_ns;
  }
  bool meets(const TraceSlice& other) const {
    return begin_ns < other.end_ns && other.begin_ns < end_ns;
  }
};
using TraceSlices = std::vector<TraceSlice>;

// One end of a message's arrow.
struct TraceArrow {
  int rank = 0, lane = 0;
  std::int64_t at_ns = 0;
  std::uint64_t id = 0;
};

// A category's memory, in order of time. What is held stays until the next moment.
struct TraceMemory {
  std::int64_t at_ns = 0, bytes = 0;
};

struct RankTrace {
  TraceSlices spans, waits, operations, arrivals;          // each in order of time
  std::map<std::string, std::vector<TraceMemory>> memory;  // by category

  TraceSlices spans_named(const std::string& name) const {
    return selected(spans, [&](const TraceSlice& slice) { return slice.name == name; });
  }
  // The operations whose label begins with this text.
  TraceSlices operations_for(const std::string& label) const {
    return selected(operations,
                    [&](const auto& of) { return of.text("label").starts_with(label); });
  }

 private:
  template <class IsWanted>
  static TraceSlices selected(const TraceSlices& slices, const IsWanted& is_wanted) {
    TraceSlices wanted;
    std::copy_if(slices.begin(), slices.end(), std::back_inserter(wanted), is_wanted);
    return wanted;
  }
};

struct Trace {
  Json about;                            // the file's otherData
  std::vector<RankTrace> ranks;          // one for each
  std::vector<TraceArrow> sends, recvs;  // where arrows begin, and where they end
};

inline std::int64_t in_ns(const Json& us) {
  return std::llround(us.get<double>() * 1000);
}

inline void add_event(const Json& event, Trace& trace) {
  const std::string kind = event.at("ph");
  if (kind == "M") return;
  const int rank = event.at("pid").get<int>() - 1;
  RankTrace& own = trace.ranks.at(static_cast<std::size_t>(rank));
  if (kind == "C") {
    for (const auto& [category, bytes] : event.at("args").items())
      own.memory[category].push_back({in_ns(event.at("ts")), bytes.get<std::int64_t>()});
    return;
  }
  const int lane = event.at("tid");
  if (kind == "s" || kind == "f") {
    (kind == "s" ? trace.sends : trace.recvs)
        .push_back({rank, lane, in_ns(event.at("ts")), event.at("id").get<std::uint64_t>()});
    return;
  }
  check(kind == "X", "an event of kind ", kind);
  const std::string category = event.at("cat");
  TraceSlices& slices = category == "span"      ? own.spans
                        : category == "wait"    ? own.waits
                        : category == "arrival" ? own.arrivals
                                                : own.operations;
  const std::int64_t begin_ns = in_ns(event.at("ts"));
  slices.push_back(
      {lane, event.at("name"), begin_ns, begin_ns + in_ns(event.at("dur")), event.at("args")});
}

// Throws CheckError for what is not such a file.
inline Trace read_trace(const std::string& path) {
  const Json json = parse_json(read_text_file(path), path);
  Trace trace = {.about = json.at("otherData")};
  trace.ranks.resize(trace.about.at("world_size").get<std::size_t>());
  for (const Json& event : json.at("traceEvents")) add_event(event, trace);
  return trace;
}

// The slices are of one lane, and sorted.
inline std::string find_crossings(const TraceSlices& slices, int rank) {
  std::string wrong;
  TraceSlices open;
  for (const TraceSlice& slice : slices) {
    while (!open.empty() && open.back().end_ns <= slice.begin_ns) open.pop_back();
    if (!open.empty() && !open.back().is_around(slice))
      wrong += concat("rank ", rank, ", lane ", slice.lane, ": '", slice.name, "' crosses '",
                      open.back().name, "'\n");
    open.push_back(slice);
  }
  return wrong;
}

inline std::string check_nesting(const Trace& trace) {
  std::string wrong;
  for (std::size_t rank = 0; rank < trace.ranks.size(); ++rank) {
    const RankTrace& own = trace.ranks[rank];
    std::map<int, TraceSlices> lanes;
    for (const TraceSlices* slices : {&own.spans, &own.waits, &own.operations, &own.arrivals})
      for (const TraceSlice& slice : *slices) lanes[slice.lane].push_back(slice);
    for (auto& [lane, slices] : lanes) {
      std::stable_sort(slices.begin(), slices.end(), [](const auto& a, const auto& b) {
        return a.begin_ns != b.begin_ns ? a.begin_ns < b.begin_ns : a.end_ns > b.end_ns;
      });
      wrong += find_crossings(slices, static_cast<int>(rank));
    }
  }
  return wrong;
}

// When the innermost slice begins that this end of an arrow hits. Nothing: it hits none of these.
inline std::optional<std::int64_t> begin_at(const TraceArrow& arrow, const Trace& trace,
                                            TraceSlices RankTrace::*slices) {
  std::optional<std::int64_t> begin_ns;
  for (const TraceSlice& slice : trace.ranks.at(static_cast<std::size_t>(arrow.rank)).*slices)
    if (slice.lane == arrow.lane && slice.begin_ns <= arrow.at_ns && arrow.at_ns <= slice.end_ns)
      begin_ns = std::max(begin_ns.value_or(slice.begin_ns), slice.begin_ns);
  return begin_ns;
}

inline std::string check_arrows(const Trace& trace) {
  std::string wrong;
  std::map<std::uint64_t, TraceArrow> begun;
  for (const TraceArrow& send : trace.sends) {
    if (!begun.emplace(send.id, send).second) wrong += concat("two sends ", send.id, "\n");
    if (!begin_at(send, trace, &RankTrace::operations))
      wrong += concat("send ", send.id, " hits no slice\n");
  }
  for (const TraceArrow& recv : trace.recvs) {
    const auto send = begun.extract(recv.id);
    const auto end = begin_at(recv, trace, &RankTrace::arrivals);
    if (!end) wrong += concat("recv ", recv.id, " hits no slice\n");
    if (send.empty()) {
      wrong += concat("recv ", recv.id, " on rank ", recv.rank, " has no send\n");
    } else if (end <= begin_at(send.mapped(), trace, &RankTrace::operations)) {
      wrong += concat("recv ", recv.id, " on rank ", recv.rank, " begins before its send\n");
    }
  }
  for (const auto& [id, send] : begun)
    wrong += concat("send ", id, " on rank ", send.rank, " has no recv\n");
  return wrong;
}

inline std::set<int> ranks_of(const std::string& group, std::size_t world_size) {
  std::set<int> ranks;
  for (std::size_t rank = 0; rank < world_size && group == "world"; ++rank)
    ranks.insert(static_cast<int>(rank));
  std::istringstream words(group.substr(0, group.find('#')));
  std::string word;
  for (words >> word; words >> word;) ranks.insert(std::stoi(word));
  return ranks;
}

inline std::string check_collectives(const Trace& trace) {
  std::map<std::pair<std::string, std::int64_t>, std::set<std::string>> kinds;
  std::map<std::pair<std::string, std::int64_t>, std::set<int>> seen;
  for (std::size_t rank = 0; rank < trace.ranks.size(); ++rank) {
    for (const TraceSlice& operation : trace.ranks[rank].operations) {
      if (operation.args.contains("from")) continue;
      const auto key = std::pair(operation.text("group"), operation.number("number"));
      kinds[key].insert(concat(operation.name, ", ", operation.number("bytes"), " bytes"));
      seen[key].insert(static_cast<int>(rank));
    }
  }
  std::string wrong;
  for (const auto& [key, ranks] : seen) {
    const std::string what = concat("collective ", key.second, " of ", key.first);
    if (ranks != ranks_of(key.first, trace.ranks.size()))
      wrong += concat(what, " is missing on a rank\n");
    if (kinds[key].size() > 1) wrong += concat(what, " differs between ranks\n");
  }
  return wrong;
}

// What is wrong with any trace, whatever was run, a line each: slices of a lane that overlap without
// one being around the other; an arrow that has one end, hits no slice, or ends at one that begins
// before that of its begin, since Perfetto would turn it round; a collective that not all ranks of
// its group have, or not in the same way. Empty: nothing.
inline std::string what_is_wrong_with(const Trace& trace) {
  return check_nesting(trace) + check_arrows(trace) + check_collectives(trace);
}

}  // namespace ladder
