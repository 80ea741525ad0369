// Turns signals into a question that the loop can ask: SIGUSR1, SIGTERM and the first SIGINT ask
// the run to save and stop. A second SIGINT kills.
#pragma once

namespace ladder {

class StopSignal {
 public:
  StopSignal();   // installs the handlers
  ~StopSignal();  // puts the default ones back and forgets what was raised
  StopSignal(const StopSignal&) = delete;
  StopSignal& operator=(const StopSignal&) = delete;

  static bool was_raised();
};

}  // namespace ladder
