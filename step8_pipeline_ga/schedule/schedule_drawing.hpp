// Shows when each stage of a pipeline computed what: on the terminal, and as a trace.
//
// Both take a simulated timeline and a measured one alike, begin at the first action, and leave out
// messages.
#pragma once

#include <string>

#include "step8_pipeline_ga/schedule/pipeline_schedule.hpp"

namespace ladder {

// One row per stage. A computation begins with its letter and its microbatch, and a line shows how
// long it takes; dots are idle time. Of two and more chunks per stage, small letters tell which:
//
//   stage 0 |F0F1....B0==F2B1==F3B2==....B3==|
//   stage 1 |..F0B0==F1B1==F2B2==F3B3==......|
//   F forward, B backward, with the number of the microbatch; . idle
//   15 slots; bubble: 25% of the ideal time, 20% of the total; live microbatches per stage: 2, 1
//
// The shortest computation has room for its number, unless a row would get longer than 160 columns;
// then numbers are left out where they do not fit. `measured_in` is what a second of the timeline is
// called: with costs of 1 it is a slot.
std::string draw_text(const Timeline& timeline, const std::string& measured_in = "s");

// As a file that --trace writes, of one optimizer step and without messages: ./ladder trace draws
// it. `title` is what it calls the run.
std::string trace_of(const Timeline& timeline, const std::string& title);

}  // namespace ladder
