// The live figure of DiLoCo's rounds: step 9's plan of when an average starts and ends, on a clock.
//
// sources: common/core/json.cpp
//
// A request: sync_every=20&fragments=4&delay=3&step=50&average=400. Times are in milliseconds.
#include <algorithm>

#include "site/figures/request.hpp"
#include "site/figures/wasm.hpp"
#include "step9_diloco/diloco_plan.hpp"

namespace ladder {
namespace {

constexpr Setting kSettings[] = {{"sync_every", 20, 2, 40, 1},
                                 {"fragments", 4, 1, 8, 1},
                                 {"delay", 1, 0, 39, 1},
                                 {"step", 50, 10, 200, 10},
                                 {"average", 400, 0, 2000, 20}};

// The trainer's conditions.
DilocoOptions options_in(const Request& request) {
  const DilocoOptions options = {.sync_every = request.count("sync_every"),
                                 .num_fragments = request.count("fragments"),
                                 .sync_delay = request.count("delay")};
  check_usage(options.sync_every % options.num_fragments == 0, "--sync-every ", options.sync_every,
              " is not divisible by --fragments ", options.num_fragments,
              ": all rounds are equally long");
  const std::int64_t length = steps_per_round(options);
  check_usage(options.sync_delay < length, "--sync-delay is ", options.sync_delay,
              ", it must be from 0 to ", length - 1,
              ": one fragment is in flight at a time, and a round has ", length, " inner steps");
  return options;
}

std::string answer(const std::string& text) {
  const Request request(text, kSettings);
  const DilocoOptions options = options_in(request);
  const double step = request.number("step");
  const double average = request.number("average") / static_cast<double>(options.num_fragments);
  Json steps = Json::array(), flights = Json::array(), waits = Json::array();
  double now = 0, arrives = 0, waited = 0, left = 0;
  std::int64_t rounds = 0;
  const std::int64_t num_steps = 2 * options.sync_every;
  for (std::int64_t i = 1; i <= num_steps; ++i) {
    steps.push_back({now, now + step});
    now += step;
    const DilocoAction action = plan_diloco(options, i);
    if (action.starts) {
      left = now;
      arrives = now + average;
    }
    if (!action.finishes) continue;
    flights.push_back(
        {{"fragment", fragment_of_round(options, rounds)}, {"begin", left}, {"end", arrives}});
    if (arrives > now) waits.push_back({now, arrives});
    waited += std::max(0.0, arrives - now);
    now = std::max(now, arrives);
    ++rounds;
  }
  return to_text({{"settings", request.settings()},
                  {"round", steps_per_round(options)},
                  {"rounds", rounds},
                  {"steps", steps},
                  {"flights", flights},
                  {"waits", waits},
                  {"average", average},
                  {"time", now},
                  {"waited", waited}});
}

}  // namespace
}  // namespace ladder

std::string answer_to(const std::string& request) {
  return ladder::answer(request);
}
