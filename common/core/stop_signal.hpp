// Turns signals into a flag that the loop can query: SIGUSR1, SIGTERM, SIGHUP (unless it is
// ignored, as under nohup) and the first SIGINT ask the run to save and stop. A second SIGINT kills
// it, until the state of its end is being saved: from there on, no signal changes how the process ends,
// whose exit code tells a scheduler whether to start it again. Nothing of it needs a console: from the first object on, SIGPIPE is ignored, so a reader that
// has gone (Ctrl-C under "| tee LOG" ends tee as well) costs output and nothing else.
#pragma once

#include <limits>

namespace ladder {

// The loss of an evaluation that a stop has ended. None is like that, and whatever other ranks add
// to it, it stays.
inline constexpr double kStoppedLoss = -std::numeric_limits<double>::infinity();

class StopSignal {
 public:
  // Installs the handlers. With last words, a signal ends the process at once, and says them to
  // standard error, until there is something to save.
  explicit StopSignal(const char* last_words = nullptr);
  // Clears the flag, and restores the default handlers. After begin_end() the signals are ignored
  // instead: nothing may kill a process between its last line and its exit code.
  ~StopSignal();
  StopSignal(const StopSignal&) = delete;
  StopSignal& operator=(const StopSignal&) = delete;

  static void begin_training();  // from here on, there is something to save
  static void begin_end();       // from here on, all that is left is to save and to report
  static bool was_raised();
  static void raise();  // as a signal does: for a program that sees a reason of its own
};

}  // namespace ladder
