#include "step0_single_gpu/denominators/puzzle.hpp"

#include <cstdio>
#include <iterator>
#include <map>
#include <nlohmann/json.hpp>
#include <sstream>

#include "common/core/check.hpp"
#include "common/core/json.hpp"
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

std::string rounded(const std::vector<double>& values) {
  std::string text;
  for (const double value : values) {
    char number[32];
    std::snprintf(number, sizeof number, "%.6g", value);
    text += (text.empty() ? "" : ", ") + std::string(number);
  }
  return concat("[", text, "]");
}

std::string member(const char* name, const std::string& value) {
  return concat("\"", name, "\": ", value);
}

std::string cut_report(const Cut& cut, const Outcome& outcome) {
  const auto last_step = static_cast<std::int64_t>(outcome.losses.size());
  const Json config = {{"data_parallel_size", cut.ranks},
                       {"accumulation", cut.flushes},
                       {"num-microbatches", cut.microbatches},
                       {"micro-batch-size", cut.rows}};
  const std::string val_loss = rounded({outcome.val_loss});
  const std::string cut_members = config.dump();
  return concat("  {", cut_members.substr(1, cut_members.size() - 2), ",\n   ",
                member("microbatch_targets", Json(outcome.microbatch_targets).dump()), ",\n   ",
                member("target_tokens", Json(outcome.target_tokens).dump()), ",\n   ",
                member("losses", rounded(outcome.losses)), ",\n   ",
                member("grad_norms", rounded(outcome.grad_norms)), ",\n   ",
                member("param_norms", rounded(outcome.param_norms)), ",\n   ",
                member("val_losses", concat("[{\"step\": ", last_step, ", \"loss\": ",
                                            val_loss.substr(1, val_loss.size() - 2), "}]")),
                "}");
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

std::string trimmed(const std::string& text) {
  const std::size_t first = text.find_first_not_of(" \t\r");
  if (first == std::string::npos) return {};
  return text.substr(first, text.find_last_not_of(" \t\r") - first + 1);
}

std::string all_names() {
  std::string names;
  for (const Mistake mistake : kAllMistakes)
    names += concat(names.empty() ? "" : ", ", name_of(mistake));
  return names;
}

// The answers by run; what is not an answer is a fault.
std::map<char, Mistake> read_answers(const std::string& text, std::vector<std::string>& faults) {
  std::map<char, Mistake> answers;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    line = trimmed(line.substr(0, line.find('#')));
    if (line.empty()) continue;
    const std::size_t colon = line.find(':');
    const std::string run = trimmed(line.substr(0, colon));
    const std::string name = colon == std::string::npos ? "" : trimmed(line.substr(colon + 1));
    const bool is_run =
        run.size() == 1 && std::string(kRuns, std::size(kRuns)).find(run) != std::string::npos;
    if (colon == std::string::npos || !is_run) {
      faults.push_back(
          concat("'", line, "' is no answer; write a run, a colon and a name, as in a: right"));
    } else if (!mistake_named(name)) {
      faults.push_back(concat("run ", run, ": '", name, "' is none of ", all_names()));
      answers.try_emplace(run[0], Mistake::kNone);
    } else if (!answers.try_emplace(run[0], *mistake_named(name)).second) {
      faults.push_back(concat("run ", run, " has two answers"));
    }
  }
  return answers;
}

}  // namespace

std::vector<Mistake> hidden_mistakes(std::uint64_t seed) {
  Random random(derive_seed(seed, "loss scaling, hidden mistakes"));
  std::vector<Mistake> hidden;
  for (std::size_t run = 0; run < std::size(kRuns); ++run)
    hidden.push_back(
        kAllMistakes[random.below(static_cast<std::int64_t>(std::size(kAllMistakes)))]);
  return hidden;
}

std::string puzzle_report(char run, Mistake mistake, std::uint64_t seed, const Corpus& corpus) {
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
        concat(cuts.empty() ? "" : ",\n", cut_report(cut, train_with(mistake, experiment, corpus)));
  }
  return concat("{\n ", member("run", concat("\"", run, "\"")), ",\n ",
                member("config", config.dump()), ",\n ", member("cuts", "[\n"), cuts, "\n ]\n}\n");
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
