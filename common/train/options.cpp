#include "common/train/options.hpp"

#include <CLI/CLI.hpp>
#include <numeric>

#include "common/core/check.hpp"
#include "common/data/tokenizer.hpp"

namespace ladder {
namespace {

// Binds options to the members of one TrainOptions. The same table serves the parser, --help,
// --print-config and the report, so none of them can be behind the others.
class OptionTable {
 public:
  OptionTable(CLI::App& app, TrainOptions& options) : app_(app), o_(options) {}

  // The values of all options, by name without the dashes.
  const Json& values() const { return values_; }

  void add_all(const std::set<OptionGroup>& groups) {
    add_run();
    add_data();
    add_model();
    add_optimizer();
    add_output();
    if (groups.contains(OptionGroup::kSimulatedRanks)) add_simulated_ranks();
  }

 private:
  template <class Value>
  void value(const char* name, Value& member, const char* help) {
    CLI::Option* option = app_.add_option(name, member, help)->capture_default_str()->group(group_);
    if constexpr (std::is_unsigned_v<Value>) option->check(CLI::NonNegativeNumber);
    remember(name, member);
  }
  void flag(const char* name, bool& member, const char* help) {
    app_.add_flag(name, member, help)->default_str(member ? "true" : "false")->group(group_);
    remember(name, member);
  }
  template <class Enum>
  void choice(const char* name, Enum& member,
              const std::vector<std::pair<std::string, Enum>>& names, const char* help) {
    std::string current;
    std::set<std::string> allowed;
    for (const auto& [text, constant] : names) {
      allowed.insert(text);
      if (constant == member) current = text;
    }
    const auto assign = [&member, names](const std::string& text) {
      for (const auto& [known, constant] : names) {
        if (known == text) member = constant;
      }
    };
    app_.add_option_function<std::string>(name, assign, help)
        ->check(CLI::IsMember(allowed))
        ->default_str(current)
        ->group(group_);
    remember(name, current);
  }

  void add_run() {
    group_ = "Run";
    value("--steps", o_.num_steps, "optimizer steps in total, those before a resume included");
    value("--seed", o_.seed, "seed of the model's start and of the order of samples");
    value("--threads", o_.num_threads,
          "compute threads per rank; bits are equal between steps with 1 only");
    choice("--transport", o_.transport,
           {{"auto", Transport::kAuto}, {"self", Transport::kSelf}, {"mpi", Transport::kMpi}},
           "what carries messages between ranks");
  }

  void add_data() {
    group_ = "Data";
    value("--data", o_.data.source,
          "corpus (built in), or a file: .txt, .jsonl (text-to-SQL), .bin (nanoGPT, llm.c)");
    value("--val-data", o_.data.validation_source,
          "validation data of the same kinds; the corpus has its own");
    choice("--rows", o_.data.rows, {{"windows", Rows::kWindows}, {"documents", Rows::kDocuments}},
           "packed windows of the context's length, or one padded document a row");
    choice("--order", o_.data.order,
           {{"shuffled", SampleOrder::kShuffled}, {"sequential", SampleOrder::kSequential}},
           "a new permutation every epoch, or as they lie");
    choice("--tail", o_.data.tail, {{"drop", Tail::kDrop}, {"pad", Tail::kPad}},
           "samples of an epoch that do not divide over the ranks: leave out, or repeat some");
    value("--micro-batch-size", o_.data.microbatch_size, "rows per forward and backward");
    value("--num-microbatches", o_.data.num_microbatches,
          "forwards and backwards per optimizer step and rank");
    value("--eval-samples", o_.data.validation_samples,
          "rows of the validation data per evaluation, 0: all");
    flag("--overfit-one-batch", o_.data.overfit_one_batch,
         "train on the first step's samples for ever: a test of the loop");
  }

  void add_model() {
    group_ = "Model";
    value("--context", o_.model.context, "tokens per row, T");
    value("--layers", o_.model.layers, "blocks, L");
    value("--heads", o_.model.heads, "attention heads, H; they divide the channels");
    value("--channels", o_.model.channels, "width, C");
    value("--vocab-size", o_.data.vocab_size,
          "number of token ids of a .bin file; 0: text, read as bytes");
    app_.add_option("--tie-embeddings", o_.model.tie_embeddings,
                    "true: the head's weight is the token embedding")
        ->default_str(o_.model.tie_embeddings ? "true" : "false")
        ->group(group_);
    remember("--tie-embeddings", o_.model.tie_embeddings);
  }

  void add_optimizer() {
    group_ = "Optimizer";
    choice("--optimizer", o_.optimizer.kind,
           {{"adamw", OptimizerKind::kAdamW}, {"sgd", OptimizerKind::kSgd}},
           "AdamW, or SGD without momentum");
    value("--lr", o_.lr.lr, "largest learning rate");
    value("--min-lr", o_.lr.min_lr, "learning rate at the last step");
    choice("--lr-schedule", o_.lr.schedule,
           {{"cosine", LrSchedule::kCosine},
            {"linear", LrSchedule::kLinear},
            {"constant", LrSchedule::kConstant}},
           "shape of the way down");
    value("--warmup-steps", o_.lr.warmup_steps, "steps over which the learning rate rises");
    value("--weight-decay", o_.optimizer.weight_decay, "on tensors of two dimensions and more");
    value("--beta1", o_.optimizer.beta1, "AdamW's memory of gradients");
    value("--beta2", o_.optimizer.beta2, "AdamW's memory of squared gradients");
    value("--eps", o_.optimizer.eps, "AdamW's guard against division by zero");
    value("--clip-norm", o_.clip_norm, "largest norm of the gradient, 0: off");
  }

  void add_output() {
    group_ = "Output";
    value("--out", o_.output.out, "folder of the run; without it a fresh one under runs/");
    value("--resume", o_.output.resume,
          "none, auto (the newest checkpoint in --out), or a checkpoint's folder");
    value("--init-from", o_.output.init_from,
          "start a new run from the parameters of this checkpoint");
    value("--log-every", o_.output.log_every, "steps between lines on the console");
    value("--eval-every", o_.output.eval_every,
          "steps between evaluations on the validation data, 0: never");
    value("--save-every", o_.output.save_every, "steps between checkpoints, 0: at the end only");
    value("--keep", o_.output.keep, "newest checkpoints that are kept, 0: all");
    value("--sample", o_.output.sample, "text that the trained model continues at the end");
    flag("--quiet", o_.output.is_quiet, "nothing on the console");
  }

  void add_simulated_ranks() {
    group_ = "Oracle";
    value("--simulate-ranks", o_.simulate_ranks,
          "play this many ranks in one process, with their order of sums");
    choice("--fold", o_.fold,
           {{"microbatches-first", Fold::kMicrobatchesFirst}, {"ranks-first", Fold::kRanksFirst}},
           "order of sums: a rank's microbatches and then ranks, or ranks within each microbatch");
  }

  void remember(const char* name, const Json& value) { values_[name + 2] = value; }

  CLI::App& app_;
  TrainOptions& o_;
  Json values_ = Json::object();
  std::string group_;
};

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

std::string nearest_option(const CLI::App& app, const std::string& unknown) {
  std::string best;
  std::size_t best_distance = unknown.size() / 2 + 2;  // farther than that is no typing mistake
  for (const CLI::Option* option : app.get_options()) {
    const std::string name = option->get_name();
    const std::size_t distance = edit_distance(unknown, name);
    if (distance < best_distance) {
      best = name;
      best_distance = distance;
    }
  }
  return best;
}

void refuse_unknown(const CLI::App& app) {
  const std::vector<std::string> extras = app.remaining();
  if (extras.empty()) return;
  const std::string unknown = extras.front().substr(0, extras.front().find('='));
  const std::string nearest = nearest_option(app, unknown);
  throw UsageError(concat("unknown option ", unknown,
                          nearest.empty() ? "" : ", did you mean " + nearest + "?",
                          " (--help lists all)"));
}

}  // namespace

CommandLine parse_command_line(int argc, const char* const* argv, const std::string& step,
                               const std::set<OptionGroup>& groups) {
  CommandLine line;
  line.options.step = step;
  CLI::App app("Trains a GPT: " + step + " of Ladder. Its README.md is the lesson.", step);
  app.allow_extras();
  app.option_defaults()->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);
  OptionTable(app, line.options).add_all(groups);
  bool print_config = false;
  std::string dry_run;
  app.add_flag("--print-config", print_config,
               "show all options with the values in force, as a --config file, and stop")
      ->group("Help")
      ->configurable(false);
  CLI::Option* dry_run_option =
      app.add_option(
             "--dry-run", dry_run,
             "show parameters, memory and tokens for RANKS ranks (default: those here), and stop")
          ->expected(0, 1)
          ->type_name("[RANKS]")
          ->group("Help")
          ->configurable(false);
  app.set_config("--config", "", "read options from this file: lines like steps = 100")
      ->group("Help");
  app.allow_config_extras(CLI::config_extras_mode::error);
  app.get_option("--help")->group("Help");
  try {
    app.parse(argc, argv);
  } catch (const CLI::CallForHelp&) {
    line.should_exit = true;
    line.text = app.help();
    return line;
  } catch (const CLI::ParseError& error) {
    throw UsageError(concat(error.what(), " (--help lists all options)"));
  }
  refuse_unknown(app);
  finalize(line.options);
  if (print_config) {
    line.should_exit = true;
    const Json values = to_json(line.options);
    for (const auto& [name, value] : values.items())
      line.text += concat(name, " = ", value.dump(), "\n");
  }
  if (dry_run_option->count() > 0) {
    check_usage(dry_run.find_first_not_of("0123456789") == std::string::npos &&
                    dry_run.size() < 7 && dry_run != "0",
                "--dry-run takes a number of ranks, not '", dry_run, "'");
    line.dry_run_ranks = dry_run.empty() ? launched_ranks() : std::stoi(dry_run);
  }
  return line;
}

void finalize(TrainOptions& options) {
  options.model.vocab_size =
      options.data.vocab_size > 0 ? options.data.vocab_size : ByteTokenizer::kVocabSize;
  options.data.context = options.model.context;
  options.data.seed = options.seed;
  validate(options.model);
  const auto at_least = [](const char* name, auto value, auto limit) {
    check_usage(value >= limit, name, " is ", value, ", it must be at least ", limit);
  };
  at_least("--steps", options.num_steps, 0);
  at_least("--threads", options.num_threads, 1);
  at_least("--micro-batch-size", options.data.microbatch_size, 1);
  at_least("--num-microbatches", options.data.num_microbatches, 1);
  at_least("--eval-samples", options.data.validation_samples, 0);
  at_least("--vocab-size", options.data.vocab_size, 0);
  at_least("--simulate-ranks", options.simulate_ranks, 1);
  at_least("--log-every", options.output.log_every, 1);
  at_least("--eval-every", options.output.eval_every, 0);
  at_least("--save-every", options.output.save_every, 0);
  at_least("--keep", options.output.keep, 0);
  at_least("--lr", options.lr.lr, 0.0);
  at_least("--min-lr", options.lr.min_lr, 0.0);
  at_least("--warmup-steps", options.lr.warmup_steps, 0);
  at_least("--weight-decay", options.optimizer.weight_decay, 0.0);
  at_least("--clip-norm", options.clip_norm, 0.0);
  check_usage(options.optimizer.eps > 0, "--eps is ", options.optimizer.eps,
              ", it must be positive");
  for (const auto& [name, beta] :
       {std::pair{"--beta1", options.optimizer.beta1}, {"--beta2", options.optimizer.beta2}}) {
    check_usage(beta >= 0 && beta < 1, name, " is ", beta, ", it must lie in [0, 1)");
  }
  check_usage(options.output.eval_every == 0 || options.data.source == "corpus" ||
                  !options.data.validation_source.empty(),
              "--eval-every ", options.output.eval_every,
              " needs validation data: give --val-data beside --data ", options.data.source);
  check_usage(options.output.resume != "auto" || !options.output.out.empty(),
              "--resume auto goes on with the newest checkpoint in --out: give it");
  check_usage(options.output.init_from.empty() || options.output.resume == "none",
              "--init-from starts a new run, --resume ", options.output.resume,
              " goes on with an old one: give one of them");
  check_usage(options.output.sample.empty() || options.data.vocab_size == 0,
              "--sample continues text, but --vocab-size ", options.data.vocab_size,
              " says that the data are token ids");
}

Json to_json(const TrainOptions& options) {
  TrainOptions copy = options;
  CLI::App app;
  OptionTable table(app, copy);
  table.add_all({OptionGroup::kSimulatedRanks});
  return table.values();
}

}  // namespace ladder
