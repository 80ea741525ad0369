// What --print-config prints reads back to the same options, for every option of every step.
#include <fstream>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <sstream>

#include "common/testing/parse_options.hpp"
#include "common/testing/temp_folder.hpp"
#include "step0_single_gpu/train.hpp"
#include "step4_bucketed_ddp/train.hpp"
#include "step7_zero3/train.hpp"
#include "step8_pipeline_ga/objectives/train.hpp"
#include "step8_pipeline_ga/tensor_parallel/train.hpp"
#include "step8_pipeline_ga/train.hpp"
#include "step9_diloco/elastic/elastic_options.hpp"
#include "step9_diloco/train.hpp"

namespace ladder {
namespace {

// The values to try for an option: others than its default, and all that a choice has.
std::vector<std::string> values_for(const std::string& name, const Json& value,
                                    const Trainer& trainer) {
  if (value.is_boolean()) return {"true", "false"};
  if (value.is_number()) return {"2", "300", "0.00123456789012345"};
  try {
    parse_words(trainer, {name.c_str(), "?"});
  } catch (const UsageError& error) {
    const std::string message = error.what();
    const std::size_t start = message.find("it must be ");
    if (start != std::string::npos && message.find(" or ", start) != std::string::npos) {
      std::vector<std::string> choices;
      std::istringstream words(
          message.substr(start + 11, message.find(',', start + 11) - start - 11));
      for (std::string word; words >> word;)
        if (word != "or") choices.push_back(word);
      return choices;
    }
  } catch (const CheckError&) {  // a file that is not there
  }
  return {"", "a folder/x, [y]; z = 1 'q'", "50:1", "localhost:1"};
}

// Options that others need next to them.
const std::vector<std::vector<const char*>> kCompanions = {
    {},
    {"--model", "llama"},
    {"--model", "smollm3"},
    {"--out", "o"},
    {"--val-data", "v"},
    {"--device", "cuda"},
    {"--precision", "fp16"},
    {"--gradient-sum", "exact"},
    {"--transport", "threads", "--ranks", "2"},
    {"--transport", "simulated", "--ranks", "3"},
    {"--eval-every", "5"},
    {"--objective", "dpo", "--dpo-reference", "a"},
    {"--objective", "self_distillation"},
    {"--pipeline-schedule", "interleaved", "--chunks-per-stage", "2"},
    {"--micro-batch-size", "2", "--local-batch-size", "8"},
    {"--workers", "9", "--worker", "1"},
    {"--lr", "1e9"},
    {"--ranks-per-machine", "2"},
    {"--tensor-ranks", "2"}};

// Gives the option with the first companion that lets it have this value.
std::optional<CommandLine> print_config(const std::string& name, const std::string& value,
                                        const Trainer& trainer) {
  for (std::vector<const char*> arguments : kCompanions) {
    arguments.insert(arguments.end(), {name.c_str(), value.c_str(), "--print-config"});
    try {
      return parse_words(trainer, arguments);
    } catch (const std::exception&) {  // it needs another companion, or a file that is there
    }
  }
  return std::nullopt;
}

TEST(PrintedConfig, ReadsBackToTheSameValues) {
  const TempFolder folder;
  const std::string path = folder.path("c.toml");
  const Trainer elastic = {
      {.step = "elastic", .options = {.own = step_options<DilocoOptions, ElasticOptions>()}},
      nullptr};
  for (const Trainer& trainer :
       {step0::trainer(), step4::trainer(), step7::trainer(), step8::trainer(),
        objectives::trainer(), tensor_parallel::trainer(), step9::trainer(), elastic}) {
    const Json defaults = to_json(parse_words(trainer, {}).options);
    for (const auto& [key, default_value] : defaults.items()) {
      bool is_changed = false;
      for (const std::string& value : values_for("--" + key, default_value, trainer)) {
        const std::optional<CommandLine> line = print_config("--" + key, value, trainer);
        if (!line) continue;
        const Json wanted = to_json(line->options);
        is_changed = is_changed || wanted[key] != default_value;
        std::ofstream(path) << line->text;
        try {
          // Printed once more, because a model to start from need not be there then.
          const CommandLine again =
              parse_words(trainer, {"--config", path.c_str(), "--print-config"});
          EXPECT_EQ(to_json(again.options), wanted) << line->text;
        } catch (const UsageError& error) {
          ADD_FAILURE() << key << " = " << value << ": " << error.what();
        }
      }
      // Workers that may die train on the CPU, send fp32, and have no exact sums.
      const std::set<std::string> fixed = {
          "device",       "deterministic",        "reduction", "nccl-timeout", "wire",
          "gradient-sum", "microbatches-per-step"};
      const bool is_fixed = trainer.step == "elastic" && fixed.contains(key);
      EXPECT_NE(is_changed, is_fixed) << key << ": no value was tried but its default";
    }
  }
}

}  // namespace
}  // namespace ladder
