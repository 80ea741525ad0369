// A message whose arrival is known, even if its rank looks for it later: a link that is simulated
// says when it will have carried the message. Of other transports nothing is known before a test()
// or wait() asks.
#pragma once

#include <cstdint>

namespace ladder {

class KnownArrival {
 public:
  virtual ~KnownArrival() = default;
  // When the message arrived, by this machine's steady clock. Call it after a test() that said
  // true, or a wait(). 0: unknown, as of all but messages, whose parts other ranks add up whenever
  // they ask.
  virtual std::int64_t arrival_ns() const = 0;
};

}  // namespace ladder
