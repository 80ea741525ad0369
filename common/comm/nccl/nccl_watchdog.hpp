// Watches NCCL's operations from a thread of its own, because nobody waits for them on the host.
//
// An operation that takes longer than the time-out, or an error that NCCL has met on the way, ends
// the process with exit code 1 and a message that names the rank and the operation; then the
// launcher ends the other ranks. There is no gentler way: the GPU is waiting inside a kernel.
//
// The time counts from the moment at which the GPU gets to the operation. What is queued before it
// may take as long as it likes.
#pragma once

#include <nccl.h>

#include <ATen/cuda/CUDAEvent.h>

#include <chrono>
#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>

namespace ladder {

class NcclWatchdog {
 public:
  explicit NcclWatchdog(double timeout_s);
  ~NcclWatchdog();  // ends the thread; operations that are still in flight are watched no longer
  NcclWatchdog(const NcclWatchdog&) = delete;
  NcclWatchdog& operator=(const NcclWatchdog&) = delete;

  // `begun` has been recorded right before the operation, `done` behind it. `comm` is a live
  // communicator until forget(comm). `describe` says what it is, for the message:
  // "rank 1 of 4: all_reduce of 1000 Float".
  void watch(ncclComm_t comm, at::cuda::CUDAEvent begun, std::shared_ptr<at::cuda::CUDAEvent> done,
             std::function<std::string()> describe);
  void forget(ncclComm_t comm);

 private:
  using Clock = std::chrono::steady_clock;
  struct Operation {
    ncclComm_t comm;
    at::cuda::CUDAEvent begun;
    std::shared_ptr<at::cuda::CUDAEvent> done;
    std::function<std::string()> describe;
    std::optional<Clock::time_point> start = {};  // once it has begun
  };
  void run();
  static void start_clock(Operation& operation);
  void check_oldest();  // operations begin and end in the order in which they were queued

  double timeout_s_;
  std::mutex mutex_;
  std::condition_variable wake_;
  bool is_ending_ = false;
  std::deque<Operation> in_flight_;
  std::thread thread_;
};

}  // namespace ladder
