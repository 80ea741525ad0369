// For tests: reads back what --trace has written, and asks what was going on when.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "common/core/json.hpp"

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

// Of one category, in order of time. What is held stays until the next moment.
struct TraceMemory {
  std::int64_t at_ns = 0, bytes = 0;
};

struct RankTrace {
  TraceSlices spans, waits, operations, arrivals;          // each in order of time
  std::map<std::string, std::vector<TraceMemory>> memory;  // by category

  TraceSlices spans_named(const std::string& name) const;
  // Those whose label begins with this text.
  TraceSlices operations_for(const std::string& label) const;
};

struct Trace {
  Json about;                            // the file's otherData
  std::vector<RankTrace> ranks;          // one for each
  std::vector<TraceArrow> sends, recvs;  // where arrows begin, and where they end
};

// Throws CheckError for what is not such a file.
Trace read_trace(const std::string& path);

// What is wrong with any trace, whatever was run, a line each: slices of a lane that overlap without
// one being around the other; an arrow that has one end, hits no slice, or ends at one that begins
// before that of its begin, since Perfetto would turn it round; a collective that not all ranks of
// its group have, or not in the same way. Empty: nothing.
std::string what_is_wrong_with(const Trace& trace);

}  // namespace ladder
