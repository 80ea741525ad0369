#include "common/train/start.hpp"

#include <memory>
#include <optional>

#include "common/core/check.hpp"
#include "common/data/bpe/bpe_files.hpp"
#include "common/data/bpe/named_tokenizer.hpp"
#include "common/data/tokenizer_source.hpp"
#include "common/model/family.hpp"
#include "common/train/checkpoint/checkpoint.hpp"
#include "common/train/checkpoint/disk.hpp"
#include "common/train/command_line.hpp"
#include "common/train/finalize.hpp"
#include "common/train/options/option_table.hpp"
#include "common/train/pretrained/model_config.hpp"
#include "common/train/pretrained/pretrained_weights.hpp"
#include "common/train/pretrained/tokenizer_folder.hpp"
#include "common/train/theory.hpp"

namespace ladder {

namespace fs = std::filesystem;

namespace {

constexpr std::uintmax_t kMostConfigBytes = 1 << 20;

// Older checkpoints do not say what --model was; their families differ in the embedding's name.
ModelFamily family_in(const Json& config, const std::vector<StoredTensor>& tensors) {
  if (config.contains("model")) return named_model(config["model"].get<std::string>()).family;
  for (const ModelFamily family : all_families())
    for (const StoredTensor& tensor : tensors)
      if (tensor.name == traits_of(family).embedding_name()) return family;
  throw UsageError("it has no token embedding of any family of models");
}

// The model of a checkpoint of ours: from the options in state.json and the tensors in
// model.safetensors.
ModelOptions model_of_checkpoint(const fs::path& checkpoint) {
  const Json config = describe_checkpoint(checkpoint).config;
  const std::string path = checkpoint / "state.json";
  TrainOptions options;
  ModelOptions& model = options.model;
  const SafetensorsReader stored(checkpoint / "model.safetensors");
  model.layers = count_in(config, "layers", path);
  model.heads = count_in(config, "heads", path);
  model.channels = count_in(config, "channels", path);
  model.context = count_in(config, "context", path);
  try {  // older checkpoints have only the options above
    model.family = family_in(config, stored.tensors());
    const std::string embedding = traits_of(model.family).embedding_name();
    for (const auto& [name, dtype, shape] : stored.tensors()) {
      if (name == embedding && !shape.empty()) model.vocab_size = shape[0];
      if (name == "lm_head.weight") model.tie_embeddings = false;
    }
    model.kv_heads = config.value("kv-heads", model.kv_heads);
    model.head_channels = config.value("head-channels", model.head_channels);
    model.mlp_channels = config.value("mlp-channels", model.mlp_channels);
    model.rope_theta = config.value("rope-theta", model.rope_theta);
    model.rope_scaling = config.value("rope-scaling", model.rope_scaling);
    model.no_rope_interval = config.value("no-rope-interval", model.no_rope_interval);
    model.norm_eps = config.value("norm-eps", model.norm_eps);
    const std::string gelu = config.value("gelu", gelu_name(model.gelu));
    check_usage(gelu == "tanh" || gelu == "exact", "\"gelu\" is \"", excerpt(gelu), "\"");
    if (gelu == "exact") model.gelu = GeluForm::kExact;
    check_ranges(options);
    return completed(model);
  } catch (const Json::exception& error) {
    throw CheckError(concat(path, ": damaged: ", json_problem(error.what())));
  } catch (const UsageError& error) {
    throw CheckError(concat(path, ": damaged: ", error.what()));
  }
}

ModelConfig config_in(const fs::path& folder) {
  const fs::path file = folder / "config.json";
  return parse_model_config(read_text_file(file, kMostConfigBytes), file);
}

// Positions that the run does not use may be there. Any type is converted.
bool fits(const StoredTensor& found, const StoredTensor& wanted, const FamilyTraits& traits) {
  std::vector<std::int64_t> shape = found.shape;
  if (found.name == traits.positions_name() && !shape.empty() && !wanted.shape.empty())
    shape[0] = std::min(shape[0], wanted.shape[0]);
  return shape == wanted.shape;
}

}  // namespace

Start::Start(fs::path path) : path_(std::move(path)) {
  std::error_code ignored;
  const bool is_own = fs::exists(path_ / "state.json", ignored);
  if (path_.empty()) return;
  if (fs::is_regular_file(path_, ignored)) {
    kind_ = Kind::kLlmC;
  } else if (!is_own && fs::exists(path_ / "config.json", ignored)) {
    kind_ = Kind::kHuggingFace;
  } else if (is_own || newest_checkpoint(path_)) {
    kind_ = Kind::kRun;
  }
}

void Start::check_can_begin(const TrainOptions& options) const {
  if (path_.empty()) return;
  std::error_code ignored;
  check_usage(fs::exists(path_, ignored), "--init-from ", path_.string(),
              ": no such file or folder. ", how_to_fetch(path_));
  if (!is_of_another_program()) {
    const std::string& out = options.output.out;
    const bool is_own = !out.empty() && lies_in(path_, out);  // then Run says so
    if (!is_own) checkpoint_in("--init-from", path_);
    return;
  }
  DataOptions data = options.data;
  data.pretrained = path_;
  for (const std::string& source : {options.data.source, options.data.validation_source}) {
    data.source = source;
    check_usage(
        source.empty() || has_unknown_tokens(data) || is_tokenizer_named(data), "--init-from ",
        path_.string(), ": brings no tokenizer.json, so nothing says which ",
        "tokens its model has for the text of ", source,
        ": give --tokenizer FOLDER with its tokenizer's files, or --tokenizer bytes if the ",
        "model is to learn bytes as tokens");
  }
}

fs::path Start::shape_file() const {
  if (kind_ == Kind::kLlmC) return path_;
  if (kind_ == Kind::kHuggingFace) return path_ / "config.json";
  return checkpoint_in("--init-from", path_) / "state.json";
}

ModelOptions Start::model() const {
  if (kind_ == Kind::kLlmC) return LlmCFile(path_).model();
  if (kind_ == Kind::kHuggingFace) {
    ModelConfig config = config_in(path_);
    if (config.window != 0) config.model.context = std::min(config.model.context, config.window);
    return config.model;
  }
  return model_of_checkpoint(shape_file().parent_path());
}

std::string Start::load(const TrainState& state, bool has_tied_head) const {
  if (!is_of_another_program()) return load_parameters(checkpoint_in("--init-from", path_), state);
  std::unique_ptr<PretrainedWeights> weights;
  const ModelFamily family = model().family;
  if (kind_ == Kind::kLlmC)
    weights = std::make_unique<LlmCFile>(path_);
  else
    weights = std::make_unique<HuggingFaceFolder>(path_, family, has_tied_head);
  check_found(weights->tensors(), state.parameters, path_.string(),
              [&](const StoredTensor& found, const StoredTensor& wanted) {
                return fits(found, wanted, traits_of(family));
              });
  return fill_all(state.parameters, [&](const std::string& name, const at::Tensor& values) {
    weights->read(name, values);
  });
}

std::string Start::describe() const {
  if (kind_ == Kind::kRun) return path_.string();
  if (kind_ == Kind::kLlmC) return concat(path_.string(), ", a GPT-2 of llm.c");
  const ModelConfig config = config_in(path_);
  return concat(path_.string(), ", a Hugging Face folder (", traits_of(config.model.family).name(),
                ")",
                config.has_dropout ? "; its config.json asks for dropout, and here training is "
                                     "without"
                                   : "");
}

void Start::keep_files(const TrainOptions& options, const fs::path& run) const {
  keep_tokenizer(options.data, run);
  keep_settings_of_start(options.output.init_from, run, options.model.context);
}

void finalize(TrainOptions& options) {
  const auto start = std::make_shared<const Start>(options.output.init_from);
  StartFiles files = {.tokenizer = read_tokenizer};
  if (start->has_model())
    files.model = [start] {
      return StartModel{start->model(), start->shape_file(), start->is_of_another_program()};
    };
  finalize(options, files);
  options.start = start;
}

void finalize(CommandLine& line) {
  if (!line.text.empty()) return;  // --help
  TrainOptions& options = line.options;
  const Start start(options.output.init_from);
  if (!line.is_question() || (!start.has_model() && needs_models_vocabulary(options.data)))
    start.check_can_begin(options);
  try {
    finalize(options);
  } catch (const UsageError&) {
    if (!line.wants_tries) throw;  // what a try adds may be what is missing
  }
  if (line.should_exit) line.text = config_text(options);
}

TrainOptions options_for(const Theory& theory, TrainOptions options) {
  options.step = theory.step;
  options.own.keep_only(theory.options.own);
  finalize(options);
  return options;
}

}  // namespace ladder
