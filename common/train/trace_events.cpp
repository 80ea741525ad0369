#include "common/train/trace_events.hpp"

#include <algorithm>
#include <limits>
#include <string>
#include <vector>

#include "common/core/check.hpp"

namespace ladder {
namespace {

constexpr int kComputeLane = 1;

std::string label_of(const TracedOperation& operation) {
  if (operation.label == nullptr) return "";
  const bool has_number = operation.label_number.name != nullptr;
  return has_number ? concat(operation.label, " ", operation.label_number.value) : operation.label;
}

// The same at both ends of a message. Readers may take it for a double.
std::uint64_t flow_id(const TracedOperation& message) {
  return std::hash<std::string>()(concat(message.group, "/", message.sender, "/", message.receiver,
                                         "/", message.tag, "/", message.number)) >>
         11;
}

Json args_of(const TracedSpan& span) {
  Json args = Json::object();
  for (const TraceNumber& number : {span.first, span.second})
    if (number.name != nullptr) args[number.name] = number.value;
  return args;
}

Json args_of(const TracedOperation& operation) {
  Json args = {{"kind", operation.kind},
               {"label", label_of(operation)},
               {"group", operation.group},
               {"number", operation.number}};
  if (operation.sender >= 0) {
    args["from"] = operation.sender;
    args["to"] = operation.receiver;
    args["tag"] = operation.tag;
  }
  args["bytes"] = operation.bytes;
  args["sent_bytes"] = operation.sent_bytes;
  return args;
}

// Lists that are sorted by their begin, those around others first.
class RankEvents {
 public:
  RankEvents(const TraceLog& log, int rank, std::int64_t zero_ns,
             const std::function<void(const Json& event)>& visit)
      : log_(log), pid_(rank + 1), zero_ns_(zero_ns + log.clock.ahead_ns), visit_(visit) {
    visit({{"ph", "M"},
           {"pid", pid_},
           {"name", "process_name"},
           {"args", {{"name", concat("rank ", rank)}}}});
    visit({{"ph", "M"},
           {"pid", pid_},
           {"name", "process_sort_index"},
           {"args", {{"sort_index", rank}}}});
    name_lane(kComputeLane, "compute");
  }

  void add_spans_and_waits() {
    struct Range {
      std::int64_t begin_ns, end_ns;
      const TracedSpan* span;  // null: a wait for the operation
      const TracedOperation* operation;
    };
    std::vector<Range> ranges;
    for (const TracedSpan& span : log_.spans())
      ranges.push_back({span.begin_ns, span.end_ns, &span, nullptr});
    for (const TracedOperation& operation : log_.operations()) {
      if (operation.wait_begin_ns > 0)
        ranges.push_back({operation.wait_begin_ns, operation.end_ns, nullptr, &operation});
    }
    std::sort(ranges.begin(), ranges.end(), [](const Range& a, const Range& b) {
      return a.begin_ns != b.begin_ns ? a.begin_ns < b.begin_ns : a.end_ns > b.end_ns;
    });
    for (const auto& [begin_ns, end_ns, span, operation] : ranges) {
      if (span != nullptr) {
        add_slice(kComputeLane, "span", span->name, begin_ns, end_ns, args_of(*span));
      } else {
        add_slice(kComputeLane, "wait", "wait", begin_ns, end_ns, args_of(*operation));
      }
    }
  }

  void add_operations() {
    std::vector<const TracedOperation*> operations;
    for (const TracedOperation& operation : log_.operations()) operations.push_back(&operation);
    std::stable_sort(operations.begin(), operations.end(),
                     [](const auto* a, const auto* b) { return a->begin_ns < b->begin_ns; });
    for (const TracedOperation* const operation : operations) {
      const int lane = free_lane(*operation);
      const std::string label = label_of(*operation);
      add_slice(lane, "operation",
                label.empty() ? operation->kind : concat(operation->kind, ": ", label),
                operation->begin_ns, operation->end_ns, args_of(*operation));
      if (operation->sender >= 0) add_arrow(lane, *operation);
    }
  }

 private:
  // Operations may overlap; slices of one lane must not.
  int free_lane(const TracedOperation& operation) {
    const auto free = std::find_if(lane_ends_.begin(), lane_ends_.end(),
                                   [&](auto end_ns) { return end_ns <= operation.begin_ns; });
    const auto index = free - lane_ends_.begin();
    const int lane = kComputeLane + 1 + static_cast<int>(index);
    if (free == lane_ends_.end()) {
      name_lane(lane, concat("network ", index + 1));
      lane_ends_.push_back(operation.end_ns);
    } else {
      *free = operation.end_ns;
    }
    return lane;
  }

  void name_lane(int lane, const std::string& name) {
    visit_({{"ph", "M"},
            {"pid", pid_},
            {"tid", lane},
            {"name", "thread_name"},
            {"args", {{"name", name}}}});
    visit_({{"ph", "M"},
            {"pid", pid_},
            {"tid", lane},
            {"name", "thread_sort_index"},
            {"args", {{"sort_index", lane}}}});
  }

  void add_slice(int lane, const char* category, const std::string& name, std::int64_t begin_ns,
                 std::int64_t end_ns, const Json& args) {
    visit_({{"ph", "X"},
            {"pid", pid_},
            {"tid", lane},
            {"ts", us_since_zero(begin_ns)},
            {"dur", static_cast<double>(end_ns - begin_ns) / 1000},
            {"cat", category},
            {"name", name},
            {"args", args}});
  }

  // From the begin of the send to the end of the recv; it is tied to the slices around these
  // moments.
  void add_arrow(int lane, const TracedOperation& message) {
    const bool is_send = message.kind == std::string("send");
    const std::int64_t at_ns =
        is_send ? message.begin_ns : std::max(message.begin_ns, message.end_ns - 1);
    Json event = {{"ph", is_send ? "s" : "f"},  {"pid", pid_},      {"tid", lane},
                  {"ts", us_since_zero(at_ns)}, {"cat", "message"}, {"name", "message"},
                  {"id", flow_id(message)}};
    if (!is_send) event["bp"] = "e";
    visit_(event);
  }

  double us_since_zero(std::int64_t ns) const { return static_cast<double>(ns - zero_ns_) / 1000; }

  const TraceLog& log_;
  int pid_;               // not 0, which viewers take for an idle processor
  std::int64_t zero_ns_;  // by this rank's clock
  const std::function<void(const Json& event)>& visit_;
  std::vector<std::int64_t> lane_ends_;  // of the network's lanes, so far
};

}  // namespace

std::int64_t first_event_ns(const TraceLog& log) {
  std::int64_t first_ns = std::numeric_limits<std::int64_t>::max();
  const auto look_at = [&](std::int64_t begin_ns) {
    first_ns = std::min(first_ns, begin_ns - log.clock.ahead_ns);
  };
  for (const TracedSpan& span : log.spans()) look_at(span.begin_ns);
  for (const TracedOperation& operation : log.operations()) look_at(operation.begin_ns);
  return first_ns;
}

void for_each_trace_event(const TraceLog& log, int rank, std::int64_t zero_ns,
                          const std::function<void(const Json& event)>& visit) {
  RankEvents events(log, rank, zero_ns, visit);
  events.add_spans_and_waits();
  events.add_operations();
}

}  // namespace ladder
