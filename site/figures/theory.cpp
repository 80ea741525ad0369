// What all trainers say of themselves, for the figures of memory and of buckets: their --dry-run, and the
// planner's clock.
//
// sources: theory
//
// A request is the words of a trainer, and besides them one of
//
//   step5_zero1 --dry-run 4 --tries     how ./ladder plan tries the step: [{"name": …, "words": …}]
//   step5_zero1 --dry-run 4 --json      what --dry-run 4 --json prints
//   step5_zero1 --dry-run 4 --json --speed 0.05:10     and with it "clock": times, and what happened
//   models, or steps                    the names of --model, or of all that train
#include <algorithm>
#include <nlohmann/json.hpp>
#include <vector>

#include "cmake/theories.hpp"
#include "common/model/model_options.hpp"
#include "common/train/clock.hpp"
#include "common/train/command_line.hpp"
#include "common/train/dry_run.hpp"
#include "common/train/finalize.hpp"
#include "site/figures/request.hpp"
#include "site/figures/wasm.hpp"

namespace ladder {
namespace {

// The value of an option that is no trainer's; the words are left without it.
std::string take(std::vector<std::string>& words, const std::string& option) {
  const auto found = std::ranges::find(words, option);
  if (found == words.end() || found + 1 == words.end()) return "";
  const std::string value = found[1];
  words.erase(found, found + 2);
  return value;
}

Json clock_json(const Json& facts, const std::string& said, const TrainOptions& options) {
  const std::vector<std::string> parts = split(said, ':');
  check_usage(parts.size() == 2, "--speed is '", said, "', it must be TFLOPS:GBPS");
  const ComputeSpeed speed = said_speed(facts, number_in(parts[0], "TFLOPS", 1e-6, 1e6),
                                        number_in(parts[1], "GBPS", 1e-6, 1e6));
  std::vector<ClockSpan> spans;
  const Estimate found = estimate(step_plan_of(facts), speed, cluster_of(options).links, &spans);
  Json json = {{"step_s", found.step_s}, {"waiting_s", found.waiting_s}, {"spans", Json::array()}};
  for (const ClockSpan& span : spans)
    json["spans"].push_back({span.rank, static_cast<int>(span.lane), span.begin_s, span.end_s,
                             span.what, span.layer, span.microbatch, span.bytes});
  return json;
}

Json models() {
  Json names = Json::array();
  for (const NamedModel& model : named_models()) names.push_back(model.name);
  return names;
}

Json answer(const std::string& text) {
  std::vector<std::string> words = split(text, ' ');
  if (words.empty() || words[0] == "models") return models();
  const std::string speed = take(words, "--speed");
  const std::vector<Theory> all = theories();
  if (words[0] == "steps") {
    Json names = Json::array();
    for (const Theory& each : all) names.push_back(each.step);
    return names;
  }
  const auto theory = std::ranges::find(all, words[0], &Theory::step);
  check_usage(theory != all.end(), "'", words[0], "' is no step or chapter that trains");
  std::vector<const char*> arguments;
  for (const std::string& word : words) arguments.push_back(word.c_str());
  CommandLine line =
      parse_command_line(static_cast<int>(arguments.size()), arguments.data(), *theory);
  check_usage(line.dry_run_ranks > 0, "add --dry-run RANKS");
  finalize(line.options, {});
  if (line.wants_tries) {
    Json tries = Json::array();
    for (const Try& each : theory->tries(line.options, line.dry_run_ranks))
      tries.push_back({{"name", each.name}, {"words", each.words}});
    return tries;
  }
  Json facts = dry_run_json(line.options, *theory, line.dry_run_ranks);
  if (!speed.empty()) facts["clock"] = clock_json(facts, speed, line.options);
  return facts;
}

}  // namespace
}  // namespace ladder

std::string answer_to(const std::string& request) {
  return ladder::to_text(ladder::answer(request));
}
