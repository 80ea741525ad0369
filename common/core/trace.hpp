// What one rank did and when, and what it held: spans, operations and memory, for --trace, and for a
// profiler.
//
//   const Span span("forward", {"microbatch", 3});   // from here to the end of the scope
//
// A span is recorded if a TraceScope is open on its thread. It is an NVTX range as well, which
// Nsight Systems shows above the GPU's kernels, in a build with CUDA. Where nobody listens it costs
// a few nanoseconds, and makes no string. Spans nest: one that begins later ends earlier. On a GPU,
// a span is the time in which the CPU queues the work.
//
// Memory:  about 70 bytes for a span, 150 for an operation and 56 for what is held, none of it in
//          tensors.
// Threads: each has its own current log. One thread at a time writes to a log.
// Units:   nanoseconds of this machine's steady clock.
#pragma once

#include <cstdint>
#include <deque>
#include <string>
#include <string_view>
#include <unordered_set>

#include "common/core/memory_ledger.hpp"

namespace ladder {

std::int64_t trace_now_ns();

// "microbatch" 3. Without a name, there is none.
struct TraceNumber {
  const char* name = nullptr;
  std::int64_t value = 0;
};

struct TracedSpan {
  const char* name = nullptr;
  TraceNumber first = {}, second = {};
  std::int64_t begin_ns = 0, end_ns = 0;
};

// Something sent or received, from its start until this rank knows that it is done.
struct TracedOperation {
  const char* kind = nullptr;   // "all_reduce"
  const char* label = nullptr;  // name and number of the span that started it; null: none
  TraceNumber label_number = {};
  const char* group = nullptr;  // the same on all of its ranks
  std::int64_t number = 0;      // of the group's collectives; of messages: see `sender`
  int sender = -1;              // of a message, a rank of the world, as is the receiver: `number`
  int receiver = -1;            // counts what one sends to the other in this group with this tag
  int tag = 0;                  // of a message
  std::int64_t bytes = 0;       // of its tensor
  std::int64_t sent_bytes = 0;  // by this rank
  std::int64_t begin_ns = 0, end_ns = 0;
  std::int64_t wait_begin_ns = 0;  // of the wait() that ended it; 0: a test() had found it done
  std::int64_t arrival_ns = 0;     // of a message, if it is known; 0: perhaps earlier than end_ns
};

// What tensors hold from this moment on.
struct TracedMemory {
  std::int64_t at_ns = 0;
  BytesByCategory bytes{};
};

// How this rank's clock compared with that of rank 0.
struct ClockReading {
  std::int64_t at_ns = 0;     // by this rank's clock
  std::int64_t ahead_ns = 0;  // this rank's clock minus rank 0's
  std::int64_t error_ns = 0;  // the true difference is at most this far away
};

// Clocks drift: what was read when the trace began and when it ended is a line.
struct TraceClock {
  ClockReading first, last;
  std::int64_t by_rank_0(std::int64_t ns) const;  // a time of this rank
};

class Span;

// The events of one rank, in memory.
class TraceLog {
 public:
  static constexpr std::int64_t kMaxEvents = 2'000'000;
  explicit TraceLog(std::int64_t max_events = kMaxEvents) : max_events_(max_events) {}
  TraceLog(const TraceLog&) = delete;
  TraceLog& operator=(const TraceLog&) = delete;

  static TraceLog* current();  // of this thread; null: nobody listens

  // A copy of this text that lives as long as the log, the same for equal texts.
  const char* keep(std::string_view text) { return texts_.emplace(text).first->c_str(); }

  // An event that is one too many is counted and dropped.
  void add(const TracedSpan& span);
  void add(const TracedOperation& operation);
  // What is held now, if the log is of a rank that has a memory ledger of its own. Spans note it when
  // they begin and end; so does a wait(), as what was sent is freed after it.
  void note_memory(std::int64_t at_ns);
  // From here until the next mark, or the end of the innermost span: a span inside that one. For
  // parts whose end nobody announces, such as the layers of a backward.
  void mark(const char* name);
  const Span* innermost() const { return innermost_; }  // the span that was opened last; or null

  const std::deque<TracedSpan>& spans() const { return spans_; }  // in the order of their ends
  const std::deque<TracedOperation>& operations() const { return operations_; }
  const std::deque<TracedMemory>& memory() const { return memory_; }  // whenever it has changed
  std::int64_t num_events() const {
    return std::ssize(spans_) + std::ssize(operations_) + std::ssize(memory_);
  }
  std::int64_t num_dropped() const { return num_dropped_; }
  void close() { is_open_ = false; }  // from here on, events are ignored

  TraceClock clock;
  bool has_memory = false;  // of its own

 private:
  friend class Span;
  bool has_room();

  std::int64_t max_events_;
  std::deque<TracedSpan> spans_;
  std::deque<TracedOperation> operations_;
  std::deque<TracedMemory> memory_;
  std::int64_t num_dropped_ = 0;
  bool is_open_ = true;
  std::unordered_set<std::string> texts_;
  Span* innermost_ = nullptr;
};

// While it lives, this log is the thread's current one.
class TraceScope {
 public:
  explicit TraceScope(TraceLog* log);  // null: nobody listens
  ~TraceScope();
  TraceScope(const TraceScope&) = delete;
  TraceScope& operator=(const TraceScope&) = delete;

 private:
  TraceLog* previous_;
};

class Span {
 public:
  // The name outlives the log: a literal, or one that the log keeps.
  explicit Span(const char* name, TraceNumber first = {}, TraceNumber second = {});
  // The name is copied, if somebody listens.
  explicit Span(const std::string& name, TraceNumber first = {}, TraceNumber second = {});
  ~Span();
  // Ends this span, and begins one with another name and the same numbers.
  void next(const char* name);
  Span(const Span&) = delete;
  Span& operator=(const Span&) = delete;

  const char* name() const { return span_.name; }
  const TraceNumber& first() const { return span_.first; }

 private:
  friend class TraceLog;
  void begin(const char* name, TraceNumber first, TraceNumber second);
  void end(std::int64_t end_ns);
  void end_mark(std::int64_t end_ns);

  TraceLog* log_;
  Span* outer_ = nullptr;
  TracedSpan span_;
  const char* mark_ = nullptr;  // that is open in this span, since mark_begin_ns_
  std::int64_t mark_begin_ns_ = 0;
};

}  // namespace ladder
