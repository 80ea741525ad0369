// The clock of ./ladder plan. Reads lines of JSON, and writes a line for each: an object with "error" if
// it is wrong.
//
//   {"facts": …, "speed": …, "links": …}    {"step_s": …, "waiting_s": …}
//   {"facts": …, "said": [TFLOPS, GBPS]}    the speed
//
// Facts are what a trainer's --dry-run N --json says; a speed is a ComputeSpeed by its members' names;
// links, to ranks of the same machine and to others, are [µs, Gbit/s], or null: infinitely fast.
#include <iostream>
#include <nlohmann/json.hpp>
#include <string>

#include "common/core/check.hpp"
#include "common/train/clock.hpp"

namespace {

using ladder::Json;

ladder::ComputeSpeed speed_of(const Json& json) {
  return {.forward_s = json.at("forward_s"),
          .backward_s = json.at("backward_s"),
          .update_s = json.at("update_s"),
          .norm_s = json.at("norm_s"),
          .rest_s = json.at("rest_s"),
          .call_s = json.at("call_s"),
          .message_s = json.at("message_s"),
          .byte_s = json.at("byte_s"),
          .sharing = json.at("sharing")};
}

Json to_json(const ladder::ComputeSpeed& speed) {
  return {{"forward_s", speed.forward_s}, {"backward_s", speed.backward_s},
          {"update_s", speed.update_s},   {"norm_s", speed.norm_s},
          {"rest_s", speed.rest_s},       {"call_s", speed.call_s},
          {"message_s", speed.message_s}, {"byte_s", speed.byte_s},
          {"sharing", speed.sharing}};
}

ladder::Link link_of(const Json& json) {
  return json.is_null() ? ladder::Link{} : ladder::Link{json.at(0), json.at(1)};
}

Json answer(const std::string& line) {
  try {
    const Json request = ladder::parse_json(line, "a request");
    if (request.contains("said"))
      return to_json(
          ladder::said_speed(request.at("facts"), request["said"].at(0), request["said"].at(1)));
    const ladder::Estimate found =
        ladder::estimate(ladder::step_plan_of(request.at("facts")), speed_of(request.at("speed")),
                         {link_of(request.at("links").at(0)), link_of(request.at("links").at(1))});
    return {{"step_s", found.step_s}, {"waiting_s", found.waiting_s}};
  } catch (const std::exception& error) {
    return {{"error", error.what()}};
  }
}

}  // namespace

int main() {
  for (std::string line; std::getline(std::cin, line);)
    std::cout << ladder::to_text(answer(line)) << std::endl;
  return 0;
}
