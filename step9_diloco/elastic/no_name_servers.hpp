// While it lives, this thread looks up no names in the network.
//
// For its messages, c10d's TCPStore asks the name server who is behind every address that it
// connects to, and waits 5 s for an answer that gets lost (github.com/pytorch/pytorch/pull/159596
// helps only where looking up fails). Connect by number while this is in force. Its warning that a
// name is missing is not shown: for that time, c10 logs errors only, in all threads.
#pragma once

#include <c10/util/Logging.h>
#include <resolv.h>

#include <atomic>

namespace ladder {

class NoNameServers {
 public:
  NoNameServers() : log_level_(log_level().exchange(c10::GLOG_ERROR)) {
    ::res_init();
    count_ = _res.nscount;
    _res.nscount = 0;
  }
  ~NoNameServers() {
    _res.nscount = count_;
    log_level() = log_level_;
  }
  NoNameServers(const NoNameServers&) = delete;
  NoNameServers& operator=(const NoNameServers&) = delete;

 private:
  static std::atomic_ref<int> log_level() { return std::atomic_ref<int>(FLAGS_caffe2_log_level); }

  int count_ = 0, log_level_;
};

}  // namespace ladder
