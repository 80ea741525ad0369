// While it lives, this thread looks up no names in the network.
//
// For its messages, c10d's TCPStore asks the name server who is behind every address that it
// connects to, and waits 5 s for an answer that gets lost (github.com/pytorch/pytorch/pull/159596
// helps only where looking up fails). Connect by number while this is in force. Its warning that a
// name is missing is not shown: while one such object lives, c10 logs errors only, in all threads.
#pragma once

#include <c10/util/Logging.h>
#include <resolv.h>

#include <atomic>
#include <mutex>

namespace ladder {

class NoNameServers {
 public:
  NoNameServers() {
    silence(+1);
    ::res_init();
    count_ = _res.nscount;
    _res.nscount = 0;
  }
  ~NoNameServers() {
    _res.nscount = count_;
    silence(-1);
  }
  NoNameServers(const NoNameServers&) = delete;
  NoNameServers& operator=(const NoNameServers&) = delete;

 private:
  // The level is the process's, and so is the number of those that want it silent.
  static void silence(int more) {
    static std::mutex mutex;
    static int num_silent = 0, loud_level = 0;
    const std::lock_guard lock(mutex);
    const std::atomic_ref<int> level(FLAGS_caffe2_log_level);
    if (num_silent == 0) loud_level = level;
    num_silent += more;
    level = num_silent > 0 ? c10::GLOG_ERROR : loud_level;
  }

  int count_ = 0;
};

}  // namespace ladder
