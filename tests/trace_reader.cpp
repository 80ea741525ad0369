#include "tests/trace_reader.hpp"

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <set>
#include <sstream>
#include <utility>

#include "common/core/check.hpp"
#include "common/train/checkpoint/disk.hpp"

namespace ladder {
namespace {

std::int64_t ns(const Json& us) {
  return std::llround(us.get<double>() * 1000);
}

TraceSlices selected(const TraceSlices& slices,
                     const std::function<bool(const TraceSlice&)>& is_wanted) {
  TraceSlices wanted;
  std::copy_if(slices.begin(), slices.end(), std::back_inserter(wanted), is_wanted);
  return wanted;
}

void add_event(const Json& event, Trace& trace) {
  const std::string kind = event.at("ph");
  if (kind == "M") return;
  const int rank = event.at("pid").get<int>() - 1;
  RankTrace& own = trace.ranks.at(static_cast<std::size_t>(rank));
  if (kind == "C") {
    for (const auto& [category, bytes] : event.at("args").items())
      own.memory[category].push_back({ns(event.at("ts")), bytes.get<std::int64_t>()});
    return;
  }
  const int lane = event.at("tid");
  if (kind == "s" || kind == "f") {
    (kind == "s" ? trace.sends : trace.recvs)
        .push_back({rank, lane, ns(event.at("ts")), event.at("id").get<std::uint64_t>()});
    return;
  }
  check(kind == "X", "an event of kind ", kind);
  const std::string category = event.at("cat");
  TraceSlices& slices = category == "span"      ? own.spans
                        : category == "wait"    ? own.waits
                        : category == "arrival" ? own.arrivals
                                                : own.operations;
  const std::int64_t begin_ns = ns(event.at("ts"));
  slices.push_back(
      {lane, event.at("name"), begin_ns, begin_ns + ns(event.at("dur")), event.at("args")});
}

// Of slices of one lane, sorted.
std::string find_crossings(const TraceSlices& slices, int rank) {
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

std::string check_nesting(const Trace& trace) {
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
std::optional<std::int64_t> begin_at(const TraceArrow& arrow, const Trace& trace,
                                     TraceSlices RankTrace::*slices) {
  std::optional<std::int64_t> begin_ns;
  for (const TraceSlice& slice : trace.ranks.at(static_cast<std::size_t>(arrow.rank)).*slices)
    if (slice.lane == arrow.lane && slice.begin_ns <= arrow.at_ns && arrow.at_ns <= slice.end_ns)
      begin_ns = std::max(begin_ns.value_or(slice.begin_ns), slice.begin_ns);
  return begin_ns;
}

std::string check_arrows(const Trace& trace) {
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

std::set<int> ranks_of(const std::string& group, std::size_t world_size) {
  std::set<int> ranks;
  for (std::size_t rank = 0; rank < world_size && group == "world"; ++rank)
    ranks.insert(static_cast<int>(rank));
  std::istringstream words(group.substr(0, group.find('#')));
  std::string word;
  for (words >> word; words >> word;) ranks.insert(std::stoi(word));
  return ranks;
}

std::string check_collectives(const Trace& trace) {
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

}  // namespace

TraceSlices RankTrace::spans_named(const std::string& name) const {
  return selected(spans, [&](const TraceSlice& slice) { return slice.name == name; });
}

TraceSlices RankTrace::operations_for(const std::string& label) const {
  return selected(operations,
                  [&](const TraceSlice& slice) { return slice.text("label").starts_with(label); });
}

Trace read_trace(const std::string& path) {
  const Json json = parse_json(read_text_file(path), path);
  Trace trace = {.about = json.at("otherData")};
  trace.ranks.resize(trace.about.at("world_size").get<std::size_t>());
  for (const Json& event : json.at("traceEvents")) add_event(event, trace);
  return trace;
}

std::string what_is_wrong_with(const Trace& trace) {
  return check_nesting(trace) + check_arrows(trace) + check_collectives(trace);
}

}  // namespace ladder
