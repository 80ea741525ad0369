// Turns signals into a flag that the loop can query: SIGUSR1, SIGTERM, SIGHUP (unless it is
// ignored, as under nohup) and the first SIGINT ask the run to save and stop. A second SIGINT kills
// it.
#pragma once

namespace ladder {

class StopSignal {
 public:
  StopSignal();   // installs the handlers
  ~StopSignal();  // restores the default handlers and clears the flag
  StopSignal(const StopSignal&) = delete;
  StopSignal& operator=(const StopSignal&) = delete;

  static bool was_raised();
  static void raise();  // as a signal does: for a program that sees a reason of its own
};

}  // namespace ladder
