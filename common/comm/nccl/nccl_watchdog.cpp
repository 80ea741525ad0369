#include "common/comm/nccl/nccl_watchdog.hpp"

#include <c10/cuda/CUDAFunctions.h>

#include <cstdio>
#include <cstdlib>

#include "common/core/check.hpp"

namespace ladder {
namespace {

constexpr std::chrono::milliseconds kInterval(100);

[[noreturn]] void end_process(const std::string& message) {
  std::fprintf(stderr, "error: %s\n", message.c_str());
  std::fflush(nullptr);
  std::_Exit(1);
}

}  // namespace

NcclWatchdog::NcclWatchdog(double timeout_s)
    : timeout_s_(timeout_s), thread_([this, device = c10::cuda::current_device()] {
        c10::cuda::set_device(device);
        run();
      }) {}

NcclWatchdog::~NcclWatchdog() {
  {
    const std::lock_guard lock(mutex_);
    is_ending_ = true;
  }
  wake_.notify_all();
  thread_.join();
}

void NcclWatchdog::watch(ncclComm_t comm, at::cuda::CUDAEvent begun,
                         std::shared_ptr<at::cuda::CUDAEvent> done,
                         std::function<std::string()> describe) {
  const std::lock_guard lock(mutex_);
  in_flight_.push_back({comm, std::move(begun), std::move(done), std::move(describe)});
}

void NcclWatchdog::forget(ncclComm_t comm) {
  const std::lock_guard lock(mutex_);
  std::erase_if(in_flight_, [=](const Operation& operation) { return operation.comm == comm; });
}

void NcclWatchdog::run() {
  std::unique_lock lock(mutex_);
  while (!wake_.wait_for(lock, kInterval, [this] { return is_ending_; })) check_oldest();
}

void NcclWatchdog::start_clock(Operation& operation) {
  if (!operation.start && operation.begun.query()) operation.start = Clock::now();
}

void NcclWatchdog::check_oldest() {
  try {
    while (!in_flight_.empty() && in_flight_.front().done->query()) in_flight_.pop_front();
    if (!in_flight_.empty()) start_clock(in_flight_.front());
  } catch (const c10::Error& error) {  // a kernel before it has failed
    end_process(concat(in_flight_.front().describe(), ": ", error.what_without_backtrace()));
  }
  if (in_flight_.empty()) return;
  const Operation& oldest = in_flight_.front();
  ncclResult_t error = ncclSuccess;
  ncclCommGetAsyncError(oldest.comm, &error);
  if (error != ncclSuccess && error != ncclInProgress)
    end_process(concat(oldest.describe(), ": NCCL: ", ncclGetErrorString(error), ": ",
                       ncclGetLastError(oldest.comm)));
  if (!oldest.start) return;
  const std::chrono::duration<double> seconds = Clock::now() - *oldest.start;
  if (seconds.count() > timeout_s_)
    end_process(
        concat(oldest.describe(), " is not done ", timeout_s_,
               " s after the GPU began it (--nccl-timeout): has another rank ended, or called "
               "something else? NCCL_DEBUG=INFO shows what NCCL sees"));
}

}  // namespace ladder
