#include "common/core/trace.hpp"

#include <chrono>
#include <cmath>

#ifdef LADDER_WITH_CUDA
#include <nvtx3/nvToolsExt.h>
#endif

namespace ladder {
namespace {

constinit thread_local TraceLog* current_log = nullptr;

#ifdef LADDER_WITH_CUDA
void push_range(const char* name) {
  nvtxRangePushA(name);
}
void pop_range() {
  nvtxRangePop();
}
#else
void push_range(const char* /*name*/) {}
void pop_range() {}
#endif

}  // namespace

std::int64_t trace_now_ns() {
  const auto now = std::chrono::steady_clock::now().time_since_epoch();
  return std::chrono::duration_cast<std::chrono::nanoseconds>(now).count();
}

std::int64_t TraceClock::by_rank_0(std::int64_t ns) const {
  const auto between = static_cast<double>(last.at_ns - first.at_ns);
  const double passed = between > 0 ? static_cast<double>(ns - first.at_ns) / between : 0;
  const auto drift_ns = static_cast<double>(last.ahead_ns - first.ahead_ns);
  return ns - first.ahead_ns - std::llround(passed * drift_ns);
}

TraceLog* TraceLog::current() {
  return current_log;
}

bool TraceLog::has_room() {
  if (!is_open_) return false;
  if (num_events() < max_events_) return true;
  ++num_dropped_;
  return false;
}

void TraceLog::add(const TracedSpan& span) {
  if (has_room()) spans_.push_back(span);
}

void TraceLog::add(const TracedOperation& operation) {
  if (has_room()) operations_.push_back(operation);
}

void TraceLog::note_memory(std::int64_t at_ns) {
  if (!has_memory) return;
  const BytesByCategory bytes = live_memory();
  const bool is_known = !memory_.empty() && memory_.back().bytes == bytes;
  if (!is_known && has_room()) memory_.push_back({at_ns, bytes});
}

void TraceLog::mark(const char* name) {
  if (innermost_ == nullptr) return;
  const std::int64_t now_ns = trace_now_ns();
  innermost_->end_mark(now_ns);
  innermost_->mark_ = name;
  innermost_->mark_begin_ns_ = now_ns;
}

TraceScope::TraceScope(TraceLog* log) : previous_(current_log) {
  current_log = log;
}
TraceScope::~TraceScope() {
  current_log = previous_;
}

Span::Span(const char* name, TraceNumber first, TraceNumber second) : log_(current_log) {
  push_range(name);
  if (log_ != nullptr) begin(name, first, second);
}

Span::Span(const std::string& name, TraceNumber first, TraceNumber second) : log_(current_log) {
  push_range(name.c_str());
  if (log_ != nullptr) begin(log_->keep(name), first, second);
}

Span::~Span() {
  if (log_ != nullptr) {
    end(trace_now_ns());
    log_->innermost_ = outer_;
  }
  pop_range();
}

void Span::next(const char* name) {
  pop_range();
  push_range(name);
  if (log_ == nullptr) return;
  const std::int64_t now_ns = trace_now_ns();
  end(now_ns);
  span_.name = name;
  span_.begin_ns = now_ns;
}

void Span::begin(const char* name, TraceNumber first, TraceNumber second) {
  outer_ = log_->innermost_;
  log_->innermost_ = this;
  span_ = {.name = name, .first = first, .second = second, .begin_ns = trace_now_ns()};
  log_->note_memory(span_.begin_ns);
}

void Span::end(std::int64_t end_ns) {
  end_mark(end_ns);
  span_.end_ns = end_ns;
  log_->add(span_);
  log_->note_memory(end_ns);
}

void Span::end_mark(std::int64_t end_ns) {
  if (mark_ == nullptr) return;
  log_->add(TracedSpan{.name = mark_, .begin_ns = mark_begin_ns_, .end_ns = end_ns});
  log_->note_memory(end_ns);
  mark_ = nullptr;
}

}  // namespace ladder
