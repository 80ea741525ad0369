#include "common/train/command_line.hpp"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <filesystem>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <numeric>
#include <optional>
#include <set>

#include "common/core/check.hpp"
#include "common/train/options/option_table.hpp"

namespace ladder {
namespace {

std::size_t edit_distance(const std::string& a, const std::string& b) {
  std::vector<std::size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), 0u);
  for (std::size_t i = 1; i <= a.size(); ++i) {
    std::size_t diagonal = row[0]++;
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const std::size_t substituted = diagonal + (a[i - 1] == b[j - 1] ? 0 : 1);
      diagonal = row[j];
      row[j] = std::min({row[j] + 1, row[j - 1] + 1, substituted});
    }
  }
  return row.back();
}

// What other trainers call it, and what it is here.
const std::map<std::string, const char*> kOtherNames = {
    {"--accumulate-grad-batches", "--num-microbatches"},
    {"--adam-beta1", "--beta1"},
    {"--adam-beta2", "--beta2"},
    {"--adam-epsilon", "--eps"},
    {"--batch-size", "--micro-batch-size"},
    {"--block-size", "--context"},
    {"--checkpoint-interval", "--save-every"},
    {"--compute-dtype", "--precision"},
    {"--d-model", "--channels"},
    {"--dataset", "--data"},
    {"--dtype", "--precision"},
    {"--embed-dim", "--channels"},
    {"--epochs", "--steps"},
    {"--eval-interval", "--eval-every"},
    {"--eval-steps", "--eval-every"},
    {"--ffn-hidden-size", "--mlp-channels"},
    {"--grad-accum-steps", "--num-microbatches"},
    {"--grad-clip", "--clip-norm"},
    {"--gradient-accumulation-steps", "--num-microbatches"},
    {"--hidden-size", "--channels"},
    {"--intermediate-size", "--mlp-channels"},
    {"--iterations", "--steps"},
    {"--learning-rate", "--lr"},
    {"--log-interval", "--log-every"},
    {"--logging-steps", "--log-every"},
    {"--lr-scheduler-type", "--lr-schedule"},
    {"--max-grad-norm", "--clip-norm"},
    {"--max-iters", "--steps"},
    {"--max-seq-length", "--context"},
    {"--max-steps", "--steps"},
    {"--mixed-precision", "--precision"},
    {"--model-name-or-path", "--init-from"},
    {"--n-embd", "--channels"},
    {"--n-head", "--heads"},
    {"--n-layer", "--layers"},
    {"--num-attention-heads", "--heads"},
    {"--num-epochs", "--steps"},
    {"--num-heads", "--heads"},
    {"--num-hidden-layers", "--layers"},
    {"--num-key-value-heads", "--kv-heads"},
    {"--num-layers", "--layers"},
    {"--num-query-groups", "--kv-heads"},
    {"--num-train-epochs", "--steps"},
    {"--output-dir", "--out"},
    {"--per-device-train-batch-size", "--micro-batch-size"},
    {"--resume-from-checkpoint", "--resume"},
    {"--save-interval", "--save-every"},
    {"--save-steps", "--save-every"},
    {"--save-total-limit", "--keep"},
    {"--seq-len", "--context"},
    {"--seq-length", "--context"},
    {"--train-data", "--data"},
    {"--train-iters", "--steps"},
    {"--warmup-iters", "--warmup-steps"},
    {"--world-size", "--ranks"},
};

std::string nearest_option(const CLI::App& app, std::string unknown) {
  std::replace(unknown.begin(), unknown.end(), '_', '-');
  const auto other = kOtherNames.find(unknown);
  if (other != kOtherNames.end() && app.get_option_no_throw(other->second)) return other->second;
  std::string best;
  // Anything farther away is not a typo. Half the length, because the two dashes always agree.
  std::size_t best_distance = std::min<std::size_t>(unknown.size() / 2, 4);
  for (const CLI::Option* option : app.get_options()) {
    const std::string name = option->get_name();
    const std::size_t distance = edit_distance(unknown, name);
    const bool begins_alike = distance == best_distance && unknown.starts_with(name);
    if (distance < best_distance || begins_alike) {
      best = name;
      best_distance = distance;
    }
  }
  return best;
}

// Every name in a --config file is an option, with one value. Returns those that the line leaves out.
std::set<std::string> read_config_file(const CLI::App& app, const std::string& path) {
  std::set<std::string> names;
  std::error_code error;
  check_usage(std::filesystem::exists(path, error) || error, "--config ", path, ": no such file");
  check_usage(std::filesystem::is_regular_file(path, error), "--config ", path,
              error ? ": " + error.message() : ": is not a regular file");
  for (const CLI::ConfigItem& item : CLI::ConfigBase().from_file(path)) {
    const std::string name = "--" + item.fullname();
    if (item.name == "++" || item.name == "--") {
      throw UsageError(
          concat(path, ": sections like [", item.parents.back(), "] have no meaning here"));
    }
    check_usage(!item.name.starts_with("\uFEFF"), path,
                ": begins with a byte order mark: save it as UTF-8 without one");
    if (app.get_option_no_throw(name) == nullptr) {
      const std::string nearest = nearest_option(app, name);
      throw UsageError(concat(path, ": unknown option ", item.fullname(),
                              nearest.empty() ? "" : ", did you mean " + nearest.substr(2) + "?"));
    }
    check_usage(item.inputs.size() == 1, path, ": ", item.fullname(), " has ", item.inputs.size(),
                " values, it takes one");
    if (app.get_option(name)->count() == 0) names.insert(name);
  }
  return names;
}

// For an option without a value, at the end of the line or before an "=" that nothing follows. The
// parser's own message begins with the option's name.
std::string explain_missing_value(const CLI::App& app, const std::string& message) {
  const std::string name = message.substr(0, message.find(':'));
  const CLI::Option* option = app.get_option_no_throw(name);
  return option == nullptr ? message : concat(name, " needs a value: ", expected_value(*option));
}

void refuse_unknown(const CLI::App& app) {
  const std::vector<std::string> extras = app.remaining();
  if (extras.empty()) return;
  const std::string unknown = extras.front().substr(0, extras.front().find('='));
  const std::string nearest = nearest_option(app, unknown);
  throw UsageError(concat("unknown option ", unknown,
                          nearest.empty() ? "" : ", did you mean " + nearest + "?",
                          " (--help lists those of ", app.get_name(), ")"));
}

// What a --config file says that the line leaves out.
struct ConfigFile {
  std::optional<std::string> path = {};
  std::set<std::string> names = {};
};

constexpr int kAsStarted = -1;  // ranks of a dry run that does not say how many

// --config, --print-config, --dry-run and the step's picture: what is asked for besides options.
void declare_requests(CLI::App& app, const Theory& theory, CommandLine& line, ConfigFile& config) {
  const auto flag = [&](const char* name, bool& member, const char* help) {
    app.add_flag(name, member, help)->group("Help")->configurable(false);
  };
  const auto request = [&](const char* name, const char* type,
                           const std::function<void(const std::string& value)>& read,
                           const char* help) {
    app.add_option_function<std::string>(name, read, help)
        ->expected(0, 1)
        ->type_name(type)
        ->group("Help")
        ->configurable(false);
  };
  flag("--print-config", line.should_exit,
       "show all options with their current values, as a --config file, and exit");
  request(
      "--dry-run", "[RANKS]",
      [&](const std::string& ranks) {
        check_usage(ranks.find_first_not_of("0123456789") == std::string::npos &&
                        ranks.size() < 7 && ranks != "0",
                    "--dry-run takes a number of ranks, not '", ranks, "'");
        line.dry_run_ranks = ranks.empty() ? kAsStarted : std::stoi(ranks);
      },
      "show parameters, memory and tokens on RANKS ranks (default: as started), and exit");
  flag("--json", line.is_json, "with --dry-run: as JSON, with the step's plans");
  app.add_flag("--tries", line.wants_tries)->group("")->configurable(false);  // for ./ladder plan
  if (theory.picture) {
    const auto read = [&line, name = theory.picture->option](const std::string& file) {
      check_usage(file.empty() || file.ends_with(".json"), name, " is '", file,
                  "', it must be the name of a .json file for ./ladder trace, or nothing for text");
      line.picture_file = file;
    };
    request(theory.picture->option, "[FILE.json]", read, theory.picture->help);
  }
  app.set_config("--config", "", "read options from this file, with lines like steps = 100")
      ->check(
          [&](const std::string& path) {
            // The parser asks again later, and then the line has everything.
            if (config.path != path) config.names = read_config_file(app, *(config.path = path));
            return std::string();
          },
          "")
      ->type_name("FILE")
      ->group("Help");
  app.allow_config_extras(CLI::config_extras_mode::error);
  app.get_option("--help")->group("Help");
}

}  // namespace

std::string config_text(const TrainOptions& options) {
  const Json values = to_json(options);
  std::string text;
  for (const auto& [name, value] : values.items()) {
    const std::string quoted = to_text(value);
    if (options.derived.contains(name)) {
      text += concat("# ", name, " = ", quoted, ", which follows from other options or this CPU\n");
    } else if (quoted.find_first_of("\\#") != std::string::npos || Json::parse(quoted) != value) {
      text +=
          concat("# ", name, ": give it on the command line; a file cannot hold ", quoted, "\n");
    } else {
      text += concat(name, " = ", quoted, "\n");
    }
  }
  return text;
}

CommandLine parse_command_line(int argc, const char* const* argv, const Theory& theory) {
  CommandLine line;
  line.options = theory.options;
  line.options.step = theory.step;
  CLI::App app("Trains a GPT: " + theory.step + " of Ladder. Its README.md is the lesson.",
               theory.step);
  app.allow_extras();
  app.option_defaults()->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);
  const OptionTable table(app, line.options);
  ConfigFile config;
  declare_requests(app, theory, line, config);
  try {
    app.parse(argc, argv);
    refuse_unknown(app);
    for (const CLI::Option* option : app.get_options())
      if (option->count() > 0) line.options.given.insert(option->get_lnames().front());
    table.check_ranges();
    table.check_effects(line.options);
  } catch (const CLI::CallForHelp&) {
    line.should_exit = true;
    line.text = app.help();
    return line;
  } catch (const UsageError& error) {  // which begins with the option, perhaps one of the file
    const std::string text = error.what();
    const bool is_of_file = config.names.contains(text.substr(0, text.find(' ')));
    throw UsageError(is_of_file ? concat(*config.path, ": ", text) : text);
  } catch (const CLI::ArgumentMismatch& error) {
    throw UsageError(explain_missing_value(app, error.what()));
  } catch (const CLI::ParseError& error) {
    throw UsageError(concat(error.what(), " (--help lists all options)"));
  }
  // Any GPU that this can run on multiplies bf16 many times faster than fp32.
  if (line.options.device.is_cuda() && !line.options.given.contains("precision"))
    line.options.model.precision.params = NumberFormat::kBf16;
  check_usage(!line.is_json || line.dry_run_ranks != 0,
              "--json says how to show what --dry-run finds: add --dry-run RANKS");
  if (line.dry_run_ranks == kAsStarted) line.dry_run_ranks = num_ranks_of(line.options);
  return line;
}

}  // namespace ladder
