#include "common/train/trace_file.hpp"

#include <ATen/ops/empty.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <memory>
#include <utility>
#include <vector>

#include "common/comm/tracing_communicator.hpp"
#include "common/core/check.hpp"
#include "common/train/checkpoint/disk.hpp"
#include "common/train/trace_events.hpp"

namespace ladder {

namespace fs = std::filesystem;

namespace {

constexpr std::size_t kPieceBytes = 1 << 20;
constexpr int kTag = 0;

// What ranks tell each other of their logs.
struct RankSummary {
  std::int64_t first_ns = 0, error_ns = 0, num_events = 0, num_dropped = 0;
};

RankSummary summary_of(const TraceLog& log) {
  return {first_event_ns(log), log.clock.error_ns, log.num_events(), log.num_dropped()};
}

std::vector<RankSummary> all_gather(const RankSummary& own, Communicator& comm) {
  constexpr std::int64_t kFields = sizeof(RankSummary) / sizeof(std::int64_t);
  const at::Tensor fields = at::empty({kFields}, at::kLong);
  std::memcpy(fields.mutable_data_ptr(), &own, sizeof own);
  const at::Tensor all = at::empty({comm.size() * kFields}, at::kLong);
  comm.all_gather(fields, all)->wait();
  std::vector<RankSummary> summaries(static_cast<std::size_t>(comm.size()));
  std::memcpy(summaries.data(), all.const_data_ptr(), all.nbytes());
  return summaries;
}

// Calls `write` with this rank's events as text, in pieces.
void render(const TraceLog& log, int rank, std::int64_t zero_ns,
            const std::function<void(const std::string& piece)>& write) {
  std::string piece;
  for_each_trace_event(log, rank, zero_ns, [&](const Json& event) {
    piece += ",\n" + to_text(event);
    if (piece.size() < kPieceBytes) return;
    write(piece);
    piece.clear();
  });
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
Json header(const TrainOptions& options, const std::vector<RankSummary>& ranks) {
  Json events = Json::array(), dropped = Json::array(), errors = Json::array();
  for (const RankSummary& rank : ranks) {
    events.push_back(rank.num_events);
    dropped.push_back(rank.num_dropped);
    errors.push_back(static_cast<double>(rank.error_ns) / 1000);
  }
  return {{"step", options.step},     {"world_size", std::ssize(ranks)},
          {"num_events", events},     {"dropped_events", dropped},
          {"clock_error_us", errors}, {"config", to_json(options)}};
}

void write_file(const fs::path& file, const Json& header,
                const std::function<void(std::ofstream& out)>& write_events) {
  std::ofstream out(file, std::ios::binary);
  out << R"({"displayTimeUnit":"ms","otherData":)" << to_text(header) << ",\n\"traceEvents\":[\n"
      << R"({"ph":"M","pid":1,"name":"process_labels","args":{"labels":)"
      << to_text(header.at("step")) << "}}";
  write_events(out);
  out << "\n]}\n";
  out.close();
  check(out.good(), "--trace ", file.string(), ": cannot be written: ", std::strerror(errno));
}

std::string describe(const fs::path& file, const std::vector<RankSummary>& ranks) {
  std::int64_t num_events = 0, num_dropped = 0;
  for (const RankSummary& rank : ranks) {
    num_events += rank.num_events;
    num_dropped += rank.num_dropped;
  }
  std::string line =
      concat("trace: ", file.string(), ", ", num_events,
             " events: open it in ui.perfetto.dev, or ./ladder trace ", file.string());
  if (num_dropped > 0) {
    line += concat("\ntrace: ", num_dropped, " more events did not fit, as a rank keeps ",
                   TraceLog::kMaxEvents, ": trace fewer steps");
  }
  return line;
}

}  // namespace

void start_trace(TraceLog& log, World& world) {
  log.clock = measure_clock_offset(world.comm());
  world.decorate([&](std::unique_ptr<Communicator> comm) {
    return std::make_unique<TracingCommunicator>(std::move(comm), log);
  });
}

TraceFile::TraceFile(const TrainOptions& options, bool is_main) {
  const std::string& name = options.output.trace;
  if (name.empty() || !is_main) return;
  const fs::path file = plain_path(name);
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
  file_ = file;
}

TraceFile::~TraceFile() {
  std::error_code ignored;
  if (!file_.empty()) fs::remove(file_, ignored);
}

std::string TraceFile::write(TraceLog& log, const TrainOptions& options, Communicator& comm) {
  log.close();
  const std::vector<RankSummary> ranks = all_gather(summary_of(log), comm);
  std::int64_t zero_ns = ranks.front().first_ns;
  for (const RankSummary& rank : ranks) zero_ns = std::min(zero_ns, rank.first_ns);
  if (comm.rank() != 0) {
    render(log, comm.rank(), zero_ns,
           [&](const std::string& piece) { send_text(piece, /*peer=*/0, comm); });
    send_text("", /*peer=*/0, comm);
    return "";
  }
  write_file(file_, header(options, ranks), [&](std::ofstream& out) {
    render(log, /*rank=*/0, zero_ns, [&](const std::string& piece) { out << piece; });
    for (int rank = 1; rank < comm.size(); ++rank) {
      for (std::string piece; !(piece = receive_text(rank, comm)).empty();) out << piece;
    }
  });
  return describe(std::exchange(file_, {}), ranks);
}

std::string TraceFile::write_own(TraceLog& log, const TrainOptions& options,
                                 const Communicator& comm) {
  log.close();
  const auto is_step = [](const TracedSpan& span) { return std::strcmp(span.name, "step") == 0; };
  if (std::none_of(log.spans().begin(), log.spans().end(), is_step)) return "";
  const int rank = comm.rank();
  const std::string name = plain_path(options.output.trace).string();
  const fs::path file = rank == 0 ? name : concat(name, ".rank", rank);
  std::vector<RankSummary> ranks(static_cast<std::size_t>(comm.size()));
  ranks[static_cast<std::size_t>(rank)] = summary_of(log);
  write_file(file, header(options, ranks), [&](std::ofstream& out) {
    // In rank 0's time, so that the files fit together.
    render(log, rank, /*zero_ns=*/0, [&](const std::string& piece) { out << piece; });
  });
  file_.clear();
  return describe(file, ranks);
}

}  // namespace ladder
