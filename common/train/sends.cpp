#include "common/train/sends.hpp"

#include <iterator>
#include <nlohmann/json.hpp>

#include "common/comm/traffic_theory.hpp"
#include "common/train/theory.hpp"

namespace ladder {
namespace {

Sent once(const Send& send, std::int64_t numel, int rank, const Machines& machines) {
  const RankGroup& group = send.group;
  std::vector<int> members;
  for (int i = 0; i < group.size && !machines.is_one(); ++i) members.push_back(group.rank(i));
  const int peer = send.operation == CommOp::kSend ? 1 : 0;  // the receiver, or rank 0
  return sent_by(send.operation, numel, send.element_bytes, group.size, group.place_of(rank), peer,
                 machines.of_part(members));
}

Json use_json(const LinkUse& use) {
  return {{"rounds", use.rounds}, {"bytes", use.bytes}};
}

}  // namespace

const char* to_string(StepPhase phase) {
  static constexpr const char* kNames[] = {
      "start",          "before_forward", "after_forward", "before_backward",
      "after_backward", "gradients",      "updated",       "end"};
  static_assert(std::size(kNames) == static_cast<std::size_t>(StepPhase::kEnd) + 1);
  return kNames[static_cast<std::size_t>(phase)];
}

const char* to_string(Wait wait) {
  static constexpr const char* kNames[] = {"at_once",   "for_weights", "for_next",   "for_phase",
                                           "for_layer", "for_steps",   "for_nothing"};
  static_assert(std::size(kNames) == static_cast<std::size_t>(Wait::kForNothing) + 1);
  return kNames[static_cast<std::size_t>(wait)];
}

void SendPlan::add(Send send, std::int64_t times, std::int64_t full_rows) {
  if (send.group.size == 0) send.group = group_;
  send.times = times;
  if (full_rows > 0)
    send.missing_numel = (times * full_rows - steps_.batches.rows) * (send.numel / full_rows);
  if (times > 0) sends_.push_back(send);
}

Traffic traffic_of(const std::vector<Send>& sends, int rank, const Machines& machines) {
  Traffic sum;
  for (const Send& send : sends) {
    Traffic traffic = once(send, send.numel, rank, machines).traffic;
    sum += traffic *= send.times;
    if (send.missing_numel == 0) continue;
    const OpTraffic more = once(send, send.missing_numel, rank, machines).traffic[send.operation];
    Traffic missing;
    missing[send.operation] = {.bytes_sent = more.bytes_sent, .outer_bytes = more.outer_bytes};
    sum -= missing;
  }
  return sum;
}

Json to_json(const std::vector<Send>& sends, int rank, const Machines& machines) {
  Json json = Json::array();
  for (const Send& send : sends) {
    const auto [traffic, links] = once(send, send.numel, rank, machines);
    const OpTraffic& sent = traffic[send.operation];
    json.push_back(
        {{"phase", to_string(send.phase)},
         {"layer", send.layer},
         {"operation", to_string(send.operation)},
         {"elements", send.numel},
         {"element_bytes", send.element_bytes},
         {"wait", to_string(send.wait)},
         {"needed_by", send.needed_by},
         {"group", {send.group.first, send.group.stride, send.group.size, send.group.neighbors}},
         {"bytes_sent", sent.bytes_sent},
         {"messages", sent.messages},
         {"inside", use_json(links.inside)},
         {"outside", use_json(links.outside)},
         {"times", send.times}});
  }
  return json;
}

StepsTaken full_step(const TrainOptions& options) {
  const std::int64_t microbatches = microbatches_per_step(options);
  return {.batches = {.microbatches = microbatches,
                      .rows = microbatches * options.data.microbatch_size}};
}

Traffic traffic_theory(const Theory& theory, const TrainOptions& options, const StepsTaken& steps,
                       int world_size, int rank, const Machines& machines) {
  return traffic_of(theory.sends(options, steps, world_size, rank), rank, machines);
}

}  // namespace ladder
