// Wall-clock time that never runs backwards.
#pragma once

#include <chrono>
#include <ctime>

namespace ladder {

class Timer {
 public:
  double seconds() const { return std::chrono::duration<double>(Clock::now() - start_).count(); }
  void restart() { start_ = Clock::now(); }

 private:
  using Clock = std::chrono::steady_clock;
  Clock::time_point start_ = Clock::now();
};

// The time that this thread has computed, whatever other programs do meanwhile.
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
