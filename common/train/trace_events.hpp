// The events of one rank in Chrome's trace format.
#pragma once

#include <cstdint>
#include <functional>

#include "common/core/json.hpp"
#include "common/core/trace.hpp"

namespace ladder {

// In rank 0's time; the greatest number there is if the log is empty.
std::int64_t first_event_ns(const TraceLog& log);

// Calls `visit` with one event after the other. Times are since zero_ns, in rank 0's time.
void for_each_trace_event(const TraceLog& log, int rank, std::int64_t zero_ns,
                          const std::function<void(const Json& event)>& visit);

}  // namespace ladder
