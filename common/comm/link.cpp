#include "common/comm/link.hpp"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <string_view>

#include "common/core/check.hpp"

namespace ladder {
namespace {

// Links outside these bounds are typos; within them, all times fit the clock.
constexpr double kMaxLatencyUs = 60e6;
constexpr double kMinGbitPerS = 1e-6;

bool read_number(std::string_view text, double& number) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  return error == std::errc() && end == text.data() + text.size();
}

}  // namespace

std::string what_is_wrong_with(const Link& link) {
  if (!(link.latency_us >= 0 && link.latency_us <= kMaxLatencyUs)) {
    return concat("the latency is ", link.latency_us, " us, it must be between 0 and ",
                  kMaxLatencyUs);
  }
  if (!(link.gbit_per_s >= kMinGbitPerS && std::isfinite(link.gbit_per_s))) {
    return concat("the bandwidth is ", link.gbit_per_s, " Gbit/s, it must be at least ",
                  kMinGbitPerS);
  }
  return {};
}

Link parse_link(const std::string& text, const std::string& option) {
  const std::string_view parts(text);
  const std::size_t colon = parts.find(':');
  Link link;
  std::string wrong;
  if (colon == std::string_view::npos) {
    wrong = "the colon is missing";
  } else if (!read_number(parts.substr(0, colon), link.latency_us) ||
             !read_number(parts.substr(colon + 1), link.gbit_per_s)) {
    wrong = "it is not two numbers";
  } else {
    wrong = what_is_wrong_with(link);
  }
  check_usage(
      wrong.empty(), option, " is '", text, "': ", wrong,
      "; it takes LATENCY_US:GBPS, for example 50:1 for 50 us per round of messages and 1 Gbit/s");
  return link;
}

double link_seconds(const Link& link, const LinkUse& use) {
  if (!link.is_on()) return 0;
  return static_cast<double>(use.rounds) * link.latency_us * 1e-6 +
         static_cast<double>(use.bytes) * 8 / (link.gbit_per_s * 1e9);
}

double link_seconds(const Links& links, const LinksUse& use) {
  return link_seconds(links.inside, use.inside) + link_seconds(links.outside, use.outside);
}

double LinkQueues::occupy(double now_s, const LinksUse& use) {
  double done_s = now_s;
  const auto pass = [&](const Link& link, const LinkUse& of_link, double& free_s) {
    if (of_link.rounds == 0) return;
    done_s = free_s = std::max(free_s, done_s) + link_seconds(link, of_link);
  };
  pass(links_.inside, use.inside, inside_free_s_);
  pass(links_.outside, use.outside, outside_free_s_);
  return done_s;
}

}  // namespace ladder
