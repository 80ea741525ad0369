// The file of the option trace: what all ranks did and when, for ui.perfetto.dev and
// chrome://tracing. docs/commands.md describes it.
//
// It is Chrome's trace format: JSON, one process per rank. A rank's first lane has its spans and
// waits; the others have its operations, as many side by side as are in flight at once. A message
// is an arrow (a flow) from its send to its recv. What a rank holds is a counter for each category.
#pragma once

#include <filesystem>
#include <optional>
#include <string>

#include "common/comm/world.hpp"
#include "common/core/trace.hpp"
#include "common/train/options/options.hpp"

namespace ladder {

// Does nothing without the option.
class TraceFile {
 public:
  // Collective. On rank 0, makes sure before training that the file can be written: throws
  // UsageError if there is one of this name (nothing is overwritten), CheckError if it cannot be
  // created. From here on, the log records this thread's spans and the operations of the world, and
  // knows how this rank's clock differs from that of rank 0. Lifetime: the log outlives the world,
  // all three this object.
  TraceFile(const TrainOptions& options, World& world, TraceLog& log);
  ~TraceFile();  // removes the file if nothing was written to it
  TraceFile(const TraceFile&) = delete;
  TraceFile& operator=(const TraceFile&) = delete;

  // Collective: rank 0 writes the events of all ranks, one rank after the other, in pieces. The log
  // records no more. Returns a line for the console. Throws CheckError if the disk is full.
  std::string write();
  // For a run that has failed, where nothing can be collective: this rank's own events, if it has
  // taken a step. Rank 0 writes them to the file, rank 1 next to it, to FILE.rank1, and so on.
  std::string write_own();

 private:
  bool is_on() const { return !options_.output.trace.empty(); }

  const TrainOptions& options_;
  World& world_;
  TraceLog& log_;
  std::optional<TraceScope> scope_;
  std::filesystem::path file_;  // that we have made, and nothing has been written to; or empty
};

}  // namespace ladder
