// The latency and bandwidth of a link between ranks that is made to feel like a network's.
#pragma once

#include <string>

#include "common/comm/traffic.hpp"

namespace ladder {

struct Link {
  double latency_us = 0;  // for each message
  double gbit_per_s = 0;  // 10^9 bits

  bool is_on() const { return latency_us != 0 || gbit_per_s != 0; }
  bool operator==(const Link&) const = default;
};

// "50:1" is 50 µs and 1 Gbit/s. Throws UsageError naming --link if the text is not such a pair, the
// latency is negative or the bandwidth is zero.
Link parse_link(const std::string& text);

// How long the link takes to send this: a latency per message, and the bytes at its bandwidth. A
// link that is off takes no time.
double link_seconds(const Link& link, const OpTraffic& sent);

// What makes a link impossible; nothing if it is a possible one.
std::string what_is_wrong_with(const Link& link);

}  // namespace ladder
