#include "step9_diloco/elastic/report.hpp"

#include <nlohmann/json.hpp>

#include "common/core/check.hpp"
#include "common/core/json.hpp"
#include "common/train/options/option_values.hpp"

// As null if it is not there.
template <class Value>
struct nlohmann::adl_serializer<std::optional<Value>> {
  static void to_json(json& json, const std::optional<Value>& value) {
    if (value) json = *value;
  }
  static void from_json(const json& json, std::optional<Value>& value) {
    if (!json.is_null()) value = json.template get<Value>();
  }
};

namespace ladder {

NLOHMANN_JSON_SERIALIZE_ENUM(Phase, {{Phase::kTraining, "training"},
                                     {Phase::kAsking, "asking"},
                                     {Phase::kHealing, "healing"}})
NLOHMANN_JSON_SERIALIZE_ENUM(Vote, {{Vote::kNone, "none"},
                                    {Vote::kFor, "for"},
                                    {Vote::kAgainst, "against"}})
NLOHMANN_JSON_SERIALIZE_ENUM(Decision, {{Decision::kOpen, "open"},
                                        {Decision::kCommit, "commit"},
                                        {Decision::kAbort, "abort"},
                                        {Decision::kUnknown, "unknown"}})
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(QuorumNumber, lighthouse_epoch, id)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(Member, worker, process, request, outer_steps, state_hash,
                                   address, has_finished, donor)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(Quorum, lighthouse_epoch, id, run, outer_steps, is_enough,
                                   members)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(Heartbeat, worker, process, phase, request, last_ended,
                                   has_finished, progress, run, last_quorum, outer_steps,
                                   state_hash, address)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(Report, version, beat, number, num_workers, settings, round,
                                   vote, is_leaving)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(Answer, version, number, lighthouse_epoch, join_timeout_s,
                                   refusal, wait, wants_settings, quorum, decision)

namespace {

constexpr std::size_t kMaxWord = 64;  // of a hash or an address: they go into every answer

// Nothing in it is negative, only seconds may have a fraction, and only ids may be larger than any
// count of a run.
void check_numbers(const SortedJson& json, const std::string& name) {
  if (json.is_structured()) {
    for (const auto& [key, value] : json.items())
      check_numbers(value, json.is_object() ? key : name);
  } else if (json.is_number()) {
    const bool is_id = name.ends_with("epoch") || name == "process" || name == "run";
    const std::uint64_t most = is_id ? kMostId : static_cast<std::uint64_t>(kMostCount);
    const bool is_count = json.is_number_unsigned() && json.get<std::uint64_t>() <= most;
    const bool is_right = is_count || (name.ends_with("_s") && json.get<double>() > 0);
    check(is_right, name, " is ", json.dump());
  }
}

SortedJson parsed(const std::string& text, const char* what) {
  check(static_cast<std::int64_t>(text.size()) <= kMaxReportBytes, what, ": ", text.size(),
        " bytes are too many");
  SortedJson json = parse_sorted_json(text, what);
  check(json.is_object(), what, ": damaged: ", excerpt(text));
  return json;
}

// All that can be wrong with it is a CheckError. What it says must be what would be written for it:
// so there is no other member, no word that is unknown, and no number that does not fit.
template <class Value>
Value value_of(const SortedJson& json, const char* what) {
  try {
    check_numbers(json, what);
    auto value = json.get<Value>();
    check(json == SortedJson(value), what, ": damaged: ", excerpt(json.dump()));
    return value;
  } catch (const SortedJson::exception& error) {
    throw CheckError(concat(what, ": ", excerpt(json_problem(error.what()))));
  }
}

std::int64_t bounded_count(const SortedJson& json, const char* name) {
  const auto found = json.find(name);
  const bool is_count = found != json.end() && found->is_number_unsigned() &&
                        found->get<std::uint64_t>() <= static_cast<std::uint64_t>(kMostCount);
  return is_count ? found->get<std::int64_t>() : 0;
}

}  // namespace

std::string to_text(const Report& report) {
  return to_text(Json(SortedJson(report)));
}
std::string to_text(const Answer& answer) {
  return to_text(Json(SortedJson(answer)));
}

Report parse_report(const std::string& text) {
  const SortedJson json = parsed(text, "report");
  const std::int64_t version = json.contains("version") ? bounded_count(json, "version") : 2;
  if (version != kReportVersion && json.contains("beat") && json.contains("number"))
    throw OtherVersion(concat("this worker speaks version ", version, " of the protocol, the ",
                              "lighthouse version ", kReportVersion,
                              ": build and start both from the same version of Ladder"),
                       bounded_count(json, "number"));
  auto report = value_of<Report>(json, "report");
  const Heartbeat& beat = report.beat;
  check(report.num_workers <= kMostRanks && beat.worker < report.num_workers, "report: worker ",
        beat.worker, " of ", report.num_workers);
  check(beat.address.size() <= kMaxWord && beat.state_hash.size() <= kMaxWord,
        "report: an address of ", beat.address.size(), " bytes, a hash of ",
        beat.state_hash.size());
  check(beat.outer_steps < kMostCount, "report: outer_steps is ",
        beat.outer_steps);  // one is added
  return report;
}

Answer parse_answer(const std::string& text) {
  const SortedJson json = parsed(text, "answer");
  const auto refusal = json.find("refusal");
  const bool has_refusal = refusal != json.end() && refusal->is_string() && *refusal != "";
  if (!json.contains("version") && has_refusal)
    return {.number = bounded_count(json, "number"), .refusal = refusal->get<std::string>()};
  return value_of<Answer>(json, "answer");
}

std::string refusal_of_version(const OtherVersion& report, std::uint64_t lighthouse_epoch) {
  return to_text(Json{{"number", report.number()},
                      {"lighthouse_epoch", lighthouse_epoch},
                      {"refusal", report.what()},
                      {"quorum", nullptr},
                      {"decision", "open"}});
}

}  // namespace ladder
