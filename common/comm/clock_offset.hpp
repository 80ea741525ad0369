// How far the ranks' clocks are apart, so that their events fit on one time line.
//
// Ranks on one machine read the same steady clock (CLOCK_MONOTONIC, which counts from when the
// machine was started). Any other rank sends rank 0 a message, which answers with its time: at that
// moment this rank's clock was between those of the sending and of the answer's arrival. Of 16 such
// round trips the shortest counts.
//
// Clocks drift, by some microseconds per second: the longer ago the measurement, the less it says.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "common/comm/communicator.hpp"
#include "common/core/trace.hpp"

namespace ladder {

std::string machine_id();  // the same for processes with the same steady clock; empty: unknown

// Collective, blocking. `machine` and `now_ns` are those of this rank.
TraceClock measure_clock_offset(Communicator& comm, const std::string& machine = machine_id(),
                                const std::function<std::int64_t()>& now_ns = trace_now_ns);

}  // namespace ladder
