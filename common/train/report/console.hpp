// What a run shows while it works: on a terminal, a progress line that is rewritten and fits into a
// row; elsewhere, plain lines. A reader that has gone, a full disk and, once a stop is requested, a reader that does
// not read lose output, and nothing else.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "common/core/amounts.hpp"
#include "common/train/report/step_record.hpp"

namespace ladder {

struct Progress {
  std::int64_t step = 0;  // steps taken, of num_steps
  std::int64_t num_steps = 0;
  StepRecord record = {};
  double learning_rate = 0;
  double counted_per_second = 0;  // since the last permanent line
  double step_seconds = 0;
  std::optional<double> seconds_left = {};  // nothing: only the step that warms up is known
  std::string mean_over = {};               // "target tokens"
  double flops_per_second = 0;              // of all ranks; 0: not known
  std::int64_t peak_bytes = 0;              // of tensors on this rank so far; 0: not known
};

class Console {
 public:
  // Writes nothing unless `is_enabled` (rank 0, not --quiet).
  explicit Console(bool is_enabled);
  ~Console();  // ends a progress line that is still open
  Console(const Console&) = delete;
  Console& operator=(const Console&) = delete;

  void line(const std::string& text);  // permanent
  // Permanent if is_logged; otherwise only on terminals, until the next one replaces it.
  void progress(const Progress& progress, bool is_logged);

 private:
  void clear_progress();

  bool is_enabled_;
  bool is_terminal_;
  bool has_progress_line_ = false;
};

std::string format_duration(double seconds);  // "42 s", "3 min 05 s", "2 h 10 min"

// A row of fewer than so many columns: what matters least comes last, and is left out.
std::string progress_row(const Progress& progress, std::size_t num_columns);

}  // namespace ladder
