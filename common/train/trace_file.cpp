#include "common/train/trace_file.hpp"

#include <ATen/ops/empty.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <limits>
#include <memory>
#include <nlohmann/json.hpp>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "common/comm/tracing_communicator.hpp"
#include "common/core/check.hpp"
#include "common/core/json.hpp"
#include "common/core/memory_ledger.hpp"
#include "common/train/checkpoint/disk.hpp"
#include "common/train/report/report.hpp"

namespace ladder {

namespace fs = std::filesystem;

namespace {

// ---- The events of one rank in Chrome's trace format

constexpr int kComputeLane = 1;
constexpr std::int64_t kArrivalNs = 20;

std::string label_of(const TracedOperation& operation) {
  if (operation.label == nullptr) return "";
  const bool has_number = operation.label_number.name != nullptr;
  return has_number ? concat(operation.label, " ", operation.label_number.value) : operation.label;
}

// An id that both ends of a message have. Readers may take it for a double.
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

// The end that is drawn, late enough that there is something to see.
std::int64_t end_of(const TracedOperation& operation) {
  if (operation.arrival_ns == 0) return operation.end_ns;
  return std::min(operation.end_ns,
                  std::max(operation.arrival_ns, operation.begin_ns + kArrivalNs));
}

// Lists that are sorted by their begin, those around others first.
class RankEvents {
 public:
  RankEvents(const TraceLog& log, int rank, std::int64_t zero_ns,
             const std::function<void(const Json& event)>& visit)
      : log_(log), pid_(rank + 1), zero_ns_(zero_ns), visit_(visit) {
    describe("process_name", {{"name", concat("rank ", rank)}});
    describe("process_sort_index", {{"sort_index", rank}});
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
                operation->begin_ns, end_of(*operation), args_of(*operation));
      if (operation->sender >= 0) add_arrow(lane, *operation);
    }
  }

  // Adds the memory of the categories that hold anything at any time.
  void add_memory() {
    BytesByCategory most = {};
    for (const TracedMemory& held : log_.memory())
      for (std::size_t i = 0; i < most.size(); ++i) most[i] = std::max(most[i], held.bytes[i]);
    for (const TracedMemory& held : log_.memory()) {
      Json bytes = Json::object();
      for (std::size_t i = 0; i < most.size(); ++i)
        if (most[i] > 0) bytes[to_string(static_cast<MemoryCategory>(i))] = held.bytes[i];
      visit_({{"ph", "C"},
              {"pid", pid_},
              {"ts", us_since_zero(held.at_ns)},
              {"name", "memory"},
              {"args", bytes}});
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
      lane_ends_.push_back(end_of(operation));
    } else {
      *free = end_of(operation);
    }
    return lane;
  }

  void describe(const char* what, const Json& args, int lane = 0) {
    Json event = {{"ph", "M"}, {"pid", pid_}, {"name", what}, {"args", args}};
    if (lane > 0) event["tid"] = lane;
    visit_(event);
  }

  void name_lane(int lane, const std::string& name) {
    describe("thread_name", {{"name", name}}, lane);
    describe("thread_sort_index", {{"sort_index", lane}}, lane);
  }

  void add_slice(int lane, const char* category, const std::string& name, std::int64_t begin_ns,
                 std::int64_t end_ns, const Json& args) {
    visit_({{"ph", "X"},
            {"pid", pid_},
            {"tid", lane},
            {"ts", us_since_zero(begin_ns)},
            {"dur", static_cast<double>(by_rank_0(end_ns) - by_rank_0(begin_ns)) / 1000},
            {"cat", category},
            {"name", name},
            {"args", args}});
  }

  // Draws an arrow from the begin of the send to the end of the recv. It is tied to the slices
  // around these moments, and Perfetto lets it begin at the one that begins first. So it ends at a
  // slice of its own, so short that it begins after the send, and not so short that rounding makes
  // it longer than the recv.
  void add_arrow(int lane, const TracedOperation& message) {
    const bool is_send = message.kind == std::string("send");
    const std::int64_t at_ns =
        is_send ? message.begin_ns : std::max(message.begin_ns, end_of(message) - kArrivalNs);
    if (!is_send)
      add_slice(lane, "arrival", "arrived", at_ns, at_ns + kArrivalNs / 2, Json::object());
    Json event = {{"ph", is_send ? "s" : "f"},  {"pid", pid_},      {"tid", lane},
                  {"ts", us_since_zero(at_ns)}, {"cat", "message"}, {"name", "message"},
                  {"id", flow_id(message)}};
    if (!is_send) event["bp"] = "e";
    visit_(event);
  }

  std::int64_t by_rank_0(std::int64_t ns) const { return log_.clock.by_rank_0(ns); }
  double us_since_zero(std::int64_t ns) const {
    return static_cast<double>(by_rank_0(ns) - zero_ns_) / 1000;
  }

  const TraceLog& log_;
  int pid_;               // not 0, which viewers take for an idle processor
  std::int64_t zero_ns_;  // by rank 0's clock
  const std::function<void(const Json& event)>& visit_;
  std::vector<std::int64_t> lane_ends_;  // of the network's lanes, so far
};

std::int64_t first_event_ns(const TraceLog& log) {
  std::int64_t first_ns = std::numeric_limits<std::int64_t>::max();
  const auto look_at = [&](std::int64_t begin_ns) {
    first_ns = std::min(first_ns, log.clock.by_rank_0(begin_ns));
  };
  for (const TracedSpan& span : log.spans()) look_at(span.begin_ns);
  for (const TracedOperation& operation : log.operations()) look_at(operation.begin_ns);
  return first_ns;
}

// ---- The file

constexpr std::size_t kBytesAtOnce = 1 << 20;
constexpr int kTag = 0;

// What ranks tell each other of their logs.
Json summary_of(const TraceLog& log) {
  const std::int64_t error_ns = std::max(log.clock.first.error_ns, log.clock.last.error_ns);
  return {{"first_ns", first_event_ns(log)},
          {"num_events", log.num_events()},
          {"dropped_events", log.num_dropped()},
          {"clock_error_us", static_cast<double>(error_ns) / 1000}};
}

// Calls `write` with this rank's events as text, in pieces.
void render(const TraceLog& log, int rank, std::int64_t zero_ns,
            const std::function<void(const std::string& piece)>& write) {
  std::string piece;
  const std::function<void(const Json& event)> add = [&](const Json& event) {
    piece += ",\n" + to_text(event);
    if (piece.size() < kBytesAtOnce) return;
    write(piece);
    piece.clear();
  };
  RankEvents events(log, rank, zero_ns, add);
  events.add_spans_and_waits();
  events.add_operations();
  events.add_memory();
  if (!piece.empty()) write(piece);
}

// A text is sent as its length and its bytes. An empty one has no bytes.
void send_text(const std::string& text, int peer, Communicator& comm) {
  const at::Tensor length = at::empty({1}, at::kLong).fill_(static_cast<std::int64_t>(text.size()));
  comm.send(length, peer, kTag)->wait();
  if (text.empty()) return;
  const at::Tensor bytes = at::empty({static_cast<std::int64_t>(text.size())}, at::kByte);
  std::memcpy(bytes.mutable_data_ptr(), text.data(), text.size());
  comm.send(bytes, peer, kTag)->wait();
}

std::string receive_text(int peer, Communicator& comm) {
  const at::Tensor length = at::empty({1}, at::kLong);
  comm.recv(length, peer, kTag)->wait();
  const auto num_bytes = *length.const_data_ptr<std::int64_t>();
  if (num_bytes == 0) return "";
  const at::Tensor bytes = at::empty({num_bytes}, at::kByte);
  comm.recv(bytes, peer, kTag)->wait();
  return {static_cast<const char*>(bytes.const_data_ptr()), static_cast<std::size_t>(num_bytes)};
}

// What is said of the whole run.
Json header_of(const TrainOptions& options, const std::vector<Json>& ranks) {
  Json header = {{"step", options.step}, {"world_size", std::ssize(ranks)}};
  for (const char* key : {"num_events", "dropped_events", "clock_error_us"})
    for (const Json& rank : ranks) header[key].push_back(rank.at(key));
  header["config"] = to_json(options);
  return header;
}

// Returns a line for the console.
std::string write_file(const fs::path& file, const Json& header,
                       const std::function<void(std::ofstream& out)>& write_events) {
  std::ofstream out(file, std::ios::binary);
  out << R"({"displayTimeUnit":"ms","otherData":)" << to_text(header) << ",\n\"traceEvents\":[\n"
      << R"({"ph":"M","pid":1,"name":"process_labels","args":{"labels":)"
      << to_text(header.at("step")) << "}}";
  write_events(out);
  out << "\n]}\n";
  out.close();
  check(out.good(), "--trace ", file.string(), ": cannot be written: ", std::strerror(errno));
  const auto sum = [&](const char* key) {
    const auto counts = header.at(key).get<std::vector<std::int64_t>>();
    return std::accumulate(counts.begin(), counts.end(), std::int64_t{0});
  };
  const std::int64_t num_dropped = sum("dropped_events");
  return concat("trace: ", file.string(), ", ", sum("num_events"),
                " events: open it in ui.perfetto.dev, or ./ladder trace ", file.string(),
                num_dropped == 0
                    ? ""
                    : concat("\ntrace: ", num_dropped, " more events did not fit, as a rank keeps ",
                             TraceLog::kMaxEvents, ": trace fewer steps"));
}

fs::path new_file(const std::string& name) {
  fs::path file = plain_path(name);
  const fs::file_type type = fs::symlink_status(file).type();
  const bool was_left_by_a_kill = type == fs::file_type::regular && fs::is_empty(file);
  check_usage(type == fs::file_type::not_found || was_left_by_a_kill, "--trace ", name,
              " already exists: name a new file, or remove this one");
  try {
    make_folders(file.parent_path());
    write_text_file(file, "");
  } catch (const CheckError& reason) {
    throw CheckError(concat("--trace ", name, ": cannot be created: ", reason.what()));
  }
  return file;
}

}  // namespace

TraceFile::TraceFile(const TrainOptions& options, World& world, TraceLog& log)
    : options_(options), world_(world), log_(log) {
  scope_.emplace(is_on() ? &log : nullptr);
  if (!is_on()) return;
  if (world.comm().rank() == 0) file_ = new_file(options.output.trace);
  log.has_memory = has_own_ledger(options);
  log.clock.first = log.clock.last = compare_clocks(world.comm());
  world.decorate([&](std::unique_ptr<Communicator> comm) {
    return std::make_unique<TracingCommunicator>(std::move(comm), log);
  });
}

TraceFile::~TraceFile() {
  std::error_code ignored;
  if (!file_.empty()) fs::remove(file_, ignored);
}

std::string TraceFile::write() {
  if (!is_on()) return "";
  Communicator& comm = world_.comm();
  log_.close();
  log_.clock.last = compare_clocks(comm);
  std::vector<Json> ranks;
  std::int64_t zero_ns = std::numeric_limits<std::int64_t>::max();
  for (const std::string& text : all_gather_text(to_text(summary_of(log_)), comm)) {
    ranks.push_back(parse_json(text, "what a rank sent"));
    zero_ns = std::min(zero_ns, ranks.back()["first_ns"].get<std::int64_t>());
  }
  if (comm.rank() != 0) {
    render(log_, comm.rank(), zero_ns,
           [&](const std::string& piece) { send_text(piece, /*peer=*/0, comm); });
    send_text("", /*peer=*/0, comm);
    return "";
  }
  std::string line = write_file(file_, header_of(options_, ranks), [&](std::ofstream& out) {
    render(log_, /*rank=*/0, zero_ns, [&](const std::string& piece) { out << piece; });
    for (int rank = 1; rank < comm.size(); ++rank) {
      for (std::string piece; !(piece = receive_text(rank, comm)).empty();) out << piece;
    }
  });
  file_.clear();
  return line;
}

std::string TraceFile::write_own() {
  log_.close();
  const auto is_step = [](const TracedSpan& span) { return std::strcmp(span.name, "step") == 0; };
  if (!is_on() || std::ranges::none_of(log_.spans(), is_step)) return "";
  const int rank = world_.comm().rank();
  const std::string name = plain_path(options_.output.trace).string();
  std::vector<Json> ranks(static_cast<std::size_t>(world_.comm().size()), summary_of(TraceLog()));
  ranks[static_cast<std::size_t>(rank)] = summary_of(log_);
  const fs::path file = rank == 0 ? name : concat(name, ".rank", rank);
  std::string line = write_file(file, header_of(options_, ranks), [&](std::ofstream& out) {
    // Every file is in rank 0's time, so that the files fit together.
    render(log_, rank, /*zero_ns=*/0, [&](const std::string& piece) { out << piece; });
  });
  file_.clear();
  return line;
}

}  // namespace ladder
