#include "step0_single_gpu/denominators/puzzle.hpp"

#include <algorithm>
#include <cstdio>
#include <iterator>
#include <map>
#include <nlohmann/json.hpp>
#include <regex>
#include <sstream>

#include "common/core/check.hpp"
#include "common/core/json.hpp"
#include "common/core/listed.hpp"
#include "common/core/seed.hpp"

namespace ladder::lab {
namespace {

// Eight rows: at once; one by one; one by one in four flushes; on two ranks.
constexpr Cut kCuts[] = {
    {.ranks = 1, .flushes = 1, .microbatches = 1, .rows = 8},
    {.ranks = 1, .flushes = 1, .microbatches = 8, .rows = 1},
    {.ranks = 1, .flushes = 4, .microbatches = 2, .rows = 1},
    {.ranks = 2, .flushes = 1, .microbatches = 1, .rows = 4},
};

// Numbers of six digits.
Json rounded(const std::vector<double>& values) {
  Json all = Json::array();
  for (const double value : values) {
    char number[32];
    std::snprintf(number, sizeof number, "%.6g", value);
    all.push_back(std::stod(number));
  }
  return all;
}

// An object, a line for the members of each of these.
std::string object_of(const std::vector<Json>& lines, const std::string& indent) {
  std::string text;
  for (const Json& members : lines) {
    const std::string line = members.dump();
    text += (text.empty() ? "{" : ",\n" + indent) + line.substr(1, line.size() - 2);
  }
  return text + "}";
}

std::string cut_report(const Cut& cut, const Outcome& outcome) {
  return object_of(
      {{{"data_parallel_size", cut.ranks},
        {"accumulation", cut.flushes},
        {"num-microbatches", cut.microbatches},
        {"micro-batch-size", cut.rows}},
       {{"microbatch_targets", outcome.microbatch_targets}},
       {{"target_tokens", outcome.target_tokens}},
       {{"losses", rounded(outcome.losses)}},
       {{"grad_norms", rounded(outcome.grad_norms)}},
       {{"param_norms", rounded(outcome.param_norms)}},
       {{"val_losses",
         {{{"step", outcome.losses.size()}, {"loss", rounded({outcome.val_loss})[0]}}}}}},
      "   ");
}

// What the answer would mean for the reports; the learner checks it against them.
const char* consequence_of(Mistake mistake) {
  switch (mistake) {
    case Mistake::kNone:
      return "all four cuts would agree in every number, and the first loss would be that of an "
             "untrained model";
    case Mistake::kMeanOfMeans:
      return "the first gradient norm would change as soon as there are several microbatches, "
             "however they are arranged";
    case Mistake::kScaledAgain:
      return "the first gradient norm would be smaller in the cut with several flushes, and only "
             "there";
    case Mistake::kValidationMeans:
      return "all gradient norms would agree, and the validation losses would not";
    case Mistake::kLocalWeights:
      return "the first gradient norm would change on two ranks, and only there";
    case Mistake::kPadding:
      return "all four cuts would agree, and the first loss would be too low for an untrained "
             "model";
  }
  throw CheckError(concat("no such mistake: ", static_cast<int>(mistake)));
}

// The answers by run; what is not an answer is a fault.
std::map<char, Mistake> read_answers(const std::string& text, std::vector<std::string>& faults) {
  static const std::regex answer(concat(R"(\s*([)", kRuns, R"(])\s*:\s*(.*?)\s*)")),
      nothing(R"(\s*)");
  std::map<char, Mistake> answers;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    line.resize(std::min(line.find('#'), line.size()));
    if (std::regex_match(line, nothing)) continue;
    std::smatch parts;
    if (!std::regex_match(line, parts, answer)) {
      faults.push_back(
          concat("'", line, "' is no answer; write a run, a colon and a name, as in a: right"));
      continue;
    }
    const char run = *parts[1].first;
    const std::string name = parts[2];
    if (!mistake_named(name)) {
      std::vector<const char*> names;
      for (const Mistake mistake : kAllMistakes) names.push_back(name_of(mistake));
      faults.push_back(concat("run ", run, ": '", name, "' is none of ", listed(names)));
    } else if (!answers.try_emplace(run, *mistake_named(name)).second) {
      faults.push_back(concat("run ", run, " has two answers"));
    }
  }
  return answers;
}

}  // namespace

std::vector<Mistake> hidden_mistakes(std::uint64_t seed) {
  Random random(derive_seed(seed, "loss scaling, hidden mistakes"));
  std::vector<Mistake> hidden;
  for (std::size_t run = 0; run < kRuns.size(); ++run)
    hidden.push_back(
        kAllMistakes[random.below(static_cast<std::int64_t>(std::size(kAllMistakes)))]);
  return hidden;
}

std::string puzzle_report(char run, Mistake mistake, std::uint64_t seed) {
  const std::uint64_t run_seed = derive_seed(seed, concat("loss scaling puzzle, run ", run));
  Experiment experiment = {.recipe = Recipe::kClippedAdamW,
                           .num_steps = 3,
                           .data_seed = run_seed,
                           .model_seed = run_seed};
  const TrainOptions options = options_of(experiment);
  const Json config = {{"optimizer", "adamw"},
                       {"lr", options.lr.lr},
                       {"clip-norm", options.clip_norm},
                       {"vocab-size", options.model.vocab_size},
                       {"context", options.model.context},
                       {"rows", "documents"},
                       {"eval-samples", options.data.validation_samples}};
  std::string cuts;
  for (const Cut& cut : kCuts) {
    experiment.cut = cut;
    cuts +=
        concat(cuts.empty() ? "" : ",\n", "  ", cut_report(cut, train_with(mistake, experiment)));
  }
  return concat("{\n \"run\":\"", run, "\",\n \"config\":", config.dump(), ",\n \"cuts\":[\n", cuts,
                "\n ]\n}\n");
}

std::vector<std::string> grade_answers(const std::string& text, std::uint64_t seed) {
  std::vector<std::string> faults;
  const std::map<char, Mistake> answers = read_answers(text, faults);
  if (!faults.empty()) return faults;
  const std::vector<Mistake> hidden = hidden_mistakes(seed);
  for (std::size_t i = 0; i < hidden.size(); ++i) {
    const auto answer = answers.find(kRuns[i]);
    if (answer == answers.end()) {
      faults.push_back(concat("run ", kRuns[i], " has no answer"));
    } else if (answer->second != hidden[i]) {
      faults.push_back(concat("run ", kRuns[i], " is not '", name_of(answer->second), "': then ",
                              consequence_of(answer->second)));
    }
  }
  return faults;
}

}  // namespace ladder::lab
