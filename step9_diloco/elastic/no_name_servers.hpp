// While it lives, this thread looks up no names in the network.
//
// For its messages, c10d's TCPStore asks the name server who is behind every address that it
// connects to, and waits 5 s for an answer that gets lost (github.com/pytorch/pytorch/pull/159596
// helps only where looking up fails). Connect by number while this is in force.
#pragma once

#include <resolv.h>

namespace ladder {

class NoNameServers {
 public:
  NoNameServers() {
    ::res_init();
    count_ = _res.nscount;
    _res.nscount = 0;
  }
  ~NoNameServers() { _res.nscount = count_; }
  NoNameServers(const NoNameServers&) = delete;
  NoNameServers& operator=(const NoNameServers&) = delete;

 private:
  int count_ = 0;
};

}  // namespace ladder
