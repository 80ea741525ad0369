#include "step9_diloco/elastic/report.hpp"

#include "common/core/check.hpp"
#include "common/core/json.hpp"

namespace ladder {
namespace {

std::uint64_t number_in(const Json& json, const char* name) {  // all 64 bits, as text
  return std::stoull(json.at(name).get<std::string>());
}

std::vector<std::uint64_t> numbers_in(const Json& json, const char* name) {
  std::vector<std::uint64_t> numbers;
  for (const Json& text : json.at(name)) numbers.push_back(std::stoull(text.get<std::string>()));
  return numbers;
}

// The last of the enumeration's values is `last`.
template <class Enum>
Enum choice_in(const Json& json, const char* name, Enum last, const char* what) {
  const std::int64_t value = count_in(json, name, what);
  check(value <= static_cast<std::int64_t>(last), what, ": ", name, " ", value);
  return static_cast<Enum>(value);
}

Json json_of(const QuorumNumber& number) {
  return {{"lighthouse_epoch", std::to_string(number.lighthouse_epoch)}, {"id", number.id}};
}

QuorumNumber quorum_number_in(const Json& json) {
  return {number_in(json, "lighthouse_epoch"), count_in(json, "id", "quorum")};
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

Json json_of(const Quorum& quorum) {
  Json json = json_of(quorum.number());
  json["outer_steps"] = quorum.outer_steps;
  json["members"] = Json::array();
  for (const Member& member : quorum.members) json["members"].push_back(json_of(member));
  return json;
}

Quorum quorum_in(const Json& json) {
  const QuorumNumber number = quorum_number_in(json);
  Quorum quorum = {.lighthouse_epoch = number.lighthouse_epoch,
                   .id = number.id,
                   .outer_steps = count_in(json, "outer_steps", "quorum")};
  for (const Json& member : json.at("members")) quorum.members.push_back(member_in(member));
  return quorum;
}

Json json_of(const Heartbeat& beat) {
  Json missed = Json::array();
  for (const std::uint64_t epoch : beat.missed) missed.push_back(std::to_string(epoch));
  return {{"worker", beat.worker},
          {"epoch", std::to_string(beat.epoch)},
          {"phase", static_cast<int>(beat.phase)},
          {"request", beat.request},
          {"last_ended", beat.last_ended},
          {"has_finished", beat.has_finished},
          {"progress", beat.progress},
          {"last_quorum", json_of(beat.last_quorum)},
          {"outer_steps", beat.outer_steps},
          {"state_hash", beat.state_hash},
          {"weight", beat.weight},
          {"address", beat.address},
          {"missed", missed}};
}

Heartbeat heartbeat_in(const Json& json) {
  const auto count = [&](const char* name) { return count_in(json, name, "heartbeat"); };
  return {.worker = json.at("worker").get<int>(),
          .epoch = number_in(json, "epoch"),
          .phase = choice_in(json, "phase", Phase::kHealing, "heartbeat"),
          .request = count("request"),
          .last_ended = count("last_ended"),
          .has_finished = json.at("has_finished").get<bool>(),
          .progress = count("progress"),
          .last_quorum = quorum_number_in(json.at("last_quorum")),
          .outer_steps = count("outer_steps"),
          .state_hash = json.at("state_hash").get<std::string>(),
          .weight = json.at("weight").get<double>(),
          .address = json.at("address").get<std::string>(),
          .missed = numbers_in(json, "missed")};
}

// Calls `read` with the parsed text. All that can be wrong with it is a CheckError.
template <class Read>
auto parsed(const std::string& text, const char* what, Read read) {
  check(static_cast<std::int64_t>(text.size()) <= kMaxReportBytes, what, ": ", text.size(),
        " bytes are too many");
  try {
    return read(parse_json(text, what));
  } catch (const CheckError&) {
    throw;
  } catch (const std::exception& error) {
    throw CheckError(concat(what, ": ", excerpt(json_problem(error.what()))));
  }
}

}  // namespace

std::string to_text(const Report& report) {
  return to_text(Json{{"beat", json_of(report.beat)},
                      {"number", report.number},
                      {"num_workers", report.rules.num_workers},
                      {"min_workers", report.rules.min_workers},
                      {"stale_s", report.rules.stale_s},
                      {"join_timeout_s", report.rules.join_timeout_s},
                      {"fingerprint", report.fingerprint},
                      {"round", json_of(report.round)},
                      {"vote", static_cast<int>(report.vote)},
                      {"is_leaving", report.is_leaving}});
}

Report parse_report(const std::string& text) {
  return parsed(text, "report", [](const Json& json) {
    Report report = {.beat = heartbeat_in(json.at("beat")),
                     .number = count_in(json, "number", "report"),
                     .rules = {.num_workers = json.at("num_workers").get<int>(),
                               .min_workers = json.at("min_workers").get<int>(),
                               .stale_s = json.at("stale_s").get<double>(),
                               .join_timeout_s = json.at("join_timeout_s").get<double>()},
                     .fingerprint = json.at("fingerprint").get<std::string>(),
                     .round = quorum_number_in(json.at("round")),
                     .vote = choice_in(json, "vote", Vote::kAgainst, "report"),
                     .is_leaving = json.at("is_leaving").get<bool>()};
    check(report.beat.worker >= 0 && report.beat.weight > 0, "report: no worker has this number ",
          "or weight");
    return report;
  });
}

std::string to_text(const Answer& answer) {
  Json json = {{"number", answer.number},
               {"lighthouse_epoch", std::to_string(answer.lighthouse_epoch)},
               {"refusal", answer.refusal},
               {"decision", static_cast<int>(answer.decision)}};
  if (answer.quorum) json["quorum"] = json_of(*answer.quorum);
  return to_text(json);
}

Answer parse_answer(const std::string& text) {
  return parsed(text, "answer", [](const Json& json) {
    Answer answer = {.number = count_in(json, "number", "answer"),
                     .lighthouse_epoch = number_in(json, "lighthouse_epoch"),
                     .refusal = json.at("refusal").get<std::string>(),
                     .decision = choice_in(json, "decision", Decision::kUnknown, "answer")};
    if (json.contains("quorum")) answer.quorum = quorum_in(json.at("quorum"));
    return answer;
  });
}

}  // namespace ladder
