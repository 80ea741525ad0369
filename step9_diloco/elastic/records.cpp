#include "step9_diloco/elastic/records.hpp"

#include "common/core/check.hpp"
#include "common/core/json_problem.hpp"
#include "common/train/json.hpp"

namespace ladder {
namespace {

constexpr std::size_t kMaxRecordBytes = 1 << 20;  // a thousand members fit

std::uint64_t number_in(const Json& json, const char* name) {  // all 64 bits, as text
  return std::stoull(json.at(name).get<std::string>());
}

std::vector<std::uint64_t> numbers_in(const Json& json, const char* name) {
  std::vector<std::uint64_t> numbers;
  for (const Json& text : json.at(name)) numbers.push_back(std::stoull(text.get<std::string>()));
  return numbers;
}

Json json_of(const Member& member) {
  Json json = {{"worker", member.worker},         {"epoch", std::to_string(member.epoch)},
               {"request", member.request},       {"outer_steps", member.outer_steps},
               {"state_hash", member.state_hash}, {"weight", member.weight},
               {"address", member.address},       {"has_finished", member.has_finished}};
  if (member.donor) json["donor"] = *member.donor;
  return json;
}

Member member_in(const Json& json) {
  Member member = {.worker = json.at("worker").get<int>(),
                   .epoch = number_in(json, "epoch"),
                   .request = count_in(json, "request", "member"),
                   .outer_steps = count_in(json, "outer_steps", "member"),
                   .state_hash = json.at("state_hash").get<std::string>(),
                   .weight = json.at("weight").get<double>(),
                   .address = json.at("address").get<std::string>(),
                   .has_finished = json.at("has_finished").get<bool>()};
  if (json.contains("donor")) member.donor = json.at("donor").get<int>();
  return member;
}

// Calls `read` with the parsed text. All that can be wrong with it is a CheckError.
template <class Read>
auto parsed(const std::string& text, const char* what, Read read) {
  check(text.size() <= kMaxRecordBytes, what, ": ", text.size(), " bytes are too many");
  try {
    return read(parse_json(text, what));
  } catch (const CheckError&) {
    throw;
  } catch (const std::exception& error) {
    throw CheckError(concat(what, ": ", excerpt(json_problem(error.what()))));
  }
}

std::string key(const char* kind, const Quorum& quorum, std::int64_t last) {
  return concat(kind, "/", quorum.lighthouse_epoch, "/", quorum.id, "/", last);
}

}  // namespace

std::string to_text(const LighthouseRecord& record) {
  return to_text(Json{{"epoch", std::to_string(record.epoch)}, {"is_public", record.is_public}});
}

LighthouseRecord parse_lighthouse(const std::string& text) {
  return parsed(text, "lighthouse", [](const Json& json) {
    return LighthouseRecord{.epoch = number_in(json, "epoch"),
                            .is_public = json.at("is_public").get<bool>()};
  });
}

std::string to_text(const BeatRecord& record) {
  const Heartbeat& beat = record.beat;
  Json missed = Json::array();
  for (const std::uint64_t epoch : beat.missed) missed.push_back(std::to_string(epoch));
  return to_text(Json{{"worker", beat.worker},
                      {"epoch", std::to_string(beat.epoch)},
                      {"phase", static_cast<int>(beat.phase)},
                      {"request", beat.request},
                      {"last_ended", beat.last_ended},
                      {"has_finished", beat.has_finished},
                      {"progress", beat.progress},
                      {"last_quorum", beat.last_quorum.id},
                      {"last_quorum_of", beat.last_quorum.lighthouse_epoch},
                      {"outer_steps", beat.outer_steps},
                      {"state_hash", beat.state_hash},
                      {"weight", beat.weight},
                      {"address", beat.address},
                      {"missed", missed},
                      {"num_workers", record.rules.num_workers},
                      {"min_workers", record.rules.min_workers},
                      {"stale_s", record.rules.stale_s},
                      {"join_timeout_s", record.rules.join_timeout_s},
                      {"fingerprint", record.fingerprint},
                      {"lighthouse_epoch", std::to_string(record.lighthouse_epoch)},
                      {"number", record.number},
                      {"is_leaving", record.is_leaving}});
}

BeatRecord parse_beat(const std::string& text) {
  return parsed(text, "heartbeat", [](const Json& json) {
    const std::int64_t phase = count_in(json, "phase", "heartbeat");
    check(phase <= static_cast<int>(Phase::kHealing), "heartbeat: phase ", phase);
    return BeatRecord{.beat = {.worker = json.at("worker").get<int>(),
                               .epoch = number_in(json, "epoch"),
                               .phase = static_cast<Phase>(phase),
                               .request = count_in(json, "request", "heartbeat"),
                               .last_ended = count_in(json, "last_ended", "heartbeat"),
                               .has_finished = json.at("has_finished").get<bool>(),
                               .progress = count_in(json, "progress", "heartbeat"),
                               .last_quorum = {static_cast<std::uint64_t>(
                                                   count_in(json, "last_quorum_of", "heartbeat")),
                                               count_in(json, "last_quorum", "heartbeat")},
                               .outer_steps = count_in(json, "outer_steps", "heartbeat"),
                               .state_hash = json.at("state_hash").get<std::string>(),
                               .weight = json.at("weight").get<double>(),
                               .address = json.at("address").get<std::string>(),
                               .missed = numbers_in(json, "missed")},
                      .rules = {.num_workers = json.at("num_workers").get<int>(),
                                .min_workers = json.at("min_workers").get<int>(),
                                .stale_s = json.at("stale_s").get<double>(),
                                .join_timeout_s = json.at("join_timeout_s").get<double>()},
                      .fingerprint = json.at("fingerprint").get<std::string>(),
                      .lighthouse_epoch = number_in(json, "lighthouse_epoch"),
                      .number = count_in(json, "number", "heartbeat"),
                      .is_leaving = json.at("is_leaving").get<bool>()};
  });
}

std::string to_text(const Quorum& quorum) {
  Json members = Json::array();
  for (const Member& member : quorum.members) members.push_back(json_of(member));
  return to_text(Json{{"lighthouse_epoch", std::to_string(quorum.lighthouse_epoch)},
                      {"id", quorum.id},
                      {"outer_steps", quorum.outer_steps},
                      {"members", members}});
}

Quorum parse_quorum(const std::string& text) {
  return parsed(text, "quorum", [](const Json& json) {
    Quorum quorum = {.lighthouse_epoch = number_in(json, "lighthouse_epoch"),
                     .id = count_in(json, "id", "quorum"),
                     .outer_steps = count_in(json, "outer_steps", "quorum")};
    for (const Json& member : json.at("members")) quorum.members.push_back(member_in(member));
    return quorum;
  });
}

std::string fingerprint_key(std::uint64_t lighthouse_epoch) {
  return concat("fingerprint/", lighthouse_epoch);
}
std::string beat_key(int worker) {
  return concat("beat/", worker);
}
std::string assignment_key(int worker) {
  return concat("assignment/", worker);
}
std::string decision_key(const Quorum& quorum) {
  return key("decision", quorum, quorum.outer_steps);
}
std::string vote_key(const Quorum& quorum, int worker) {
  return key("vote", quorum, worker);
}
std::string seen_key(const Quorum& quorum, int worker) {
  return key("seen", quorum, worker);
}

}  // namespace ladder
