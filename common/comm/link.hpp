// The latency and bandwidth of links between ranks that are made to feel like a network's.
#pragma once

#include <cstdint>
#include <string>

namespace ladder {

struct Link {
  double latency_us = 0;  // of each round of messages
  double gbit_per_s = 0;  // 10^9 bits

  bool is_on() const { return latency_us != 0 || gbit_per_s != 0; }
  bool operator==(const Link&) const = default;
};

// "50:1" is 50 µs and 1 Gbit/s. Throws UsageError naming `option` if the text is not such a pair,
// the latency is negative or the bandwidth is zero.
Link parse_link(const std::string& text, const std::string& option = "--link");

// What makes a link impossible; nothing if it is a possible one.
std::string what_is_wrong_with(const Link& link);

// What an operation puts on a link: messages of one round are on their way together, and share its
// latency.
struct LinkUse {
  std::int64_t rounds = 0, bytes = 0;
  bool operator==(const LinkUse&) const = default;
};

// How long the link takes to send this. A link that is off takes no time.
double link_seconds(const Link& link, const LinkUse& use);

// Of a rank: one to ranks on the same machine, one to those on others.
struct Links {
  Links(const Link& everywhere = {}) : Links(everywhere, everywhere) {}  // NOLINT(*-explicit-*)
  Links(const Link& of_machine, const Link& between) : inside(of_machine), outside(between) {}

  Link inside, outside;
  bool is_on() const { return inside.is_on() || outside.is_on(); }
};

// What connects the ranks.
struct Cluster {
  Links links;
  int ranks_per_machine = 0;  // 0: as many as the launcher has started there
};

struct LinksUse {
  LinkUse inside, outside;
  bool operator==(const LinksUse&) const = default;
};

double link_seconds(const Links& links, const LinksUse& use);  // one after the other

// Both serve what is started in its order, and each operation passes the inner one first: what goes
// to other machines is a sum over this one. While one is outside, the next may be inside.
class LinkQueues {
 public:
  explicit LinkQueues(const Links& links) : links_(links) {}

  // Returns the time at which an operation that starts now will have been sent.
  double occupy(double now_s, const LinksUse& use);
  const Links& links() const { return links_; }

 private:
  Links links_;
  double inside_free_s_ = 0, outside_free_s_ = 0;
};

}  // namespace ladder
