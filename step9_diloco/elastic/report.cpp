#include "step9_diloco/elastic/report.hpp"

#include <nlohmann/json.hpp>

#include "common/core/check.hpp"
#include "common/core/json.hpp"

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
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(Member, worker, epoch, request, outer_steps, state_hash, weight,
                                   address, has_finished, donor)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(Quorum, lighthouse_epoch, id, outer_steps, members)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(Heartbeat, worker, epoch, phase, request, last_ended,
                                   has_finished, progress, last_quorum, outer_steps, state_hash,
                                   weight, address, missed)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(QuorumRules, num_workers, min_workers, stale_s, join_timeout_s)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(Report, beat, number, rules, fingerprint, round, vote,
                                   is_leaving)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(Answer, number, lighthouse_epoch, refusal, quorum, decision)

namespace {

constexpr std::uint64_t kMaxCount = std::uint64_t{1} << 53;

// Nothing in it is negative, only a weight and seconds may have a fraction, and only epochs are
// larger than any count of a run.
void check_numbers(const SortedJson& json, const std::string& name) {
  if (json.is_structured()) {
    for (const auto& [key, value] : json.items())
      check_numbers(value, json.is_object() ? key : name);
  } else if (json.is_number()) {
    const bool may_be_fraction = name == "weight" || name.ends_with("_s");
    const bool is_epoch = name.ends_with("epoch") || name == "missed";
    const bool is_count =
        json.is_number_unsigned() && (is_epoch || json.get<std::uint64_t>() <= kMaxCount);
    const bool is_right = is_count || (may_be_fraction && json.get<double>() >= 0);
    check(is_right, name, " is ", json.dump());
  }
}

// All that can be wrong with the text is a CheckError. What it says must be what would be written
// for it: so there is no other member, no word that is unknown, and no number that does not fit.
template <class Value>
Value parsed(const std::string& text, const char* what) {
  check(static_cast<std::int64_t>(text.size()) <= kMaxReportBytes, what, ": ", text.size(),
        " bytes are too many");
  try {
    const SortedJson json = parse_sorted_json(text, what);
    check_numbers(json, what);
    auto value = json.get<Value>();
    check(json == SortedJson(value), what, ": damaged: ", excerpt(text));
    return value;
  } catch (const SortedJson::exception& error) {
    throw CheckError(concat(what, ": ", excerpt(json_problem(error.what()))));
  }
}

}  // namespace

std::string to_text(const Report& report) {
  return to_text(Json(SortedJson(report)));
}
std::string to_text(const Answer& answer) {
  return to_text(Json(SortedJson(answer)));
}

Report parse_report(const std::string& text) {
  auto report = parsed<Report>(text, "report");
  check(report.beat.weight > 0, "report: no worker has the weight ", report.beat.weight);
  return report;
}
Answer parse_answer(const std::string& text) {
  return parsed<Answer>(text, "answer");
}

}  // namespace ladder
