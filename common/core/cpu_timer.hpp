// The time that this thread has computed, whatever other programs do meanwhile.
#pragma once

#include <ctime>

namespace ladder {

class CpuTimer {
 public:
  double seconds() const { return now_s() - start_s_; }
  void restart() { start_s_ = now_s(); }

 private:
  static double now_s() {
    std::timespec time{};
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
    return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
  }
  double start_s_ = now_s();
};

}  // namespace ladder
