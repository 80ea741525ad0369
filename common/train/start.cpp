#include "common/train/start.hpp"

#include <memory>
#include <optional>

#include "common/core/check.hpp"
#include "common/data/bpe/bpe_files.hpp"
#include "common/data/bpe/named_tokenizer.hpp"
#include "common/data/tokenizer_source.hpp"
#include "common/model/build_layers.hpp"
#include "common/model/family.hpp"
#include "common/train/checkpoint/checkpoint.hpp"
#include "common/train/checkpoint/disk.hpp"
#include "common/train/options/option_table.hpp"
#include "common/train/pretrained/model_config.hpp"
#include "common/train/pretrained/pretrained_weights.hpp"
#include "common/train/pretrained/tokenizer_folder.hpp"
#include "common/train/trainer.hpp"

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

template <class Value>
std::string option_text(Value value) {
  if constexpr (std::is_same_v<Value, ModelFamily>)
    return traits_of(value).name();
  else if constexpr (std::is_same_v<Value, GeluForm>)
    return gelu_name(value);
  else
    return default_text(value);
}

// The options that give a model its shape, but for the family, the context and the vocabulary, for
// which more than one value may be right. Calls visit(name without dashes, pointer to member).
template <class Visit>
void visit_shape(const Visit& visit) {
  visit("layers", &ModelOptions::layers);
  visit("heads", &ModelOptions::heads);
  visit("kv-heads", &ModelOptions::kv_heads);
  visit("head-channels", &ModelOptions::head_channels);
  visit("channels", &ModelOptions::channels);
  visit("mlp-channels", &ModelOptions::mlp_channels);
  visit("tie-embeddings", &ModelOptions::tie_embeddings);
  visit("rope-theta", &ModelOptions::rope_theta);
  visit("rope-scaling", &ModelOptions::rope_scaling);
  visit("no-rope-interval", &ModelOptions::no_rope_interval);
  visit("norm-eps", &ModelOptions::norm_eps);
  visit("gelu", &ModelOptions::gelu);
}

bool is_same_shape(const ModelOptions& a, const ModelOptions& b) {
  bool is_same = a.vocab_size == b.vocab_size;
  visit_shape([&](const char*, auto member) { is_same = is_same && a.*member == b.*member; });
  return is_same;
}

// Sets an option of the shape, unless it was given and says something else.
template <class Value>
void take(TrainOptions& options, const char* name, Value& member, const Value& value,
          const std::string& file) {
  check_usage(!options.given.contains(name) || member == value, "--", name, " ",
              option_text(member), " contradicts ", file, ", whose model has ", option_text(value),
              ": leave it out");
  member = value;
  options.derived.insert(name);
}

// Learned positions of a run of ours stay as they are, and another program's are the most that the
// model can have; of rotary ones there may be more or fewer.
void take_context(TrainOptions& options, const ModelOptions& found, bool is_of_another_program,
                  const std::string& file) {
  std::int64_t& context = options.model.context;
  const bool is_given = options.given.contains("context");
  const bool is_learned = !traits_of(found.family).has_rotary_positions();
  if (is_learned && !is_of_another_program)
    return take(options, "context", context, found.context, file);
  check_usage(!is_given || !is_of_another_program || context <= found.context, "--context ",
              context, " is longer than the model of ", file, " can read: at most ", found.context,
              " tokens, as its positions or its \"sliding_window\" allow");
  if (is_given) return;
  context = is_learned || !is_of_another_program ? found.context : std::min(context, found.context);
}

// Takes the model's shape from where the run starts. Throws UsageError if an option was given that
// contradicts it, or if the data have more token ids than the model.
void take_shape(const Start& start, TrainOptions& options) {
  const ModelOptions found = start.model();
  const std::string file = start.shape_file();
  TrainOptions taken = options;
  ModelOptions& model = taken.model;
  take(taken, "model", model.family, found.family, file);
  const std::optional<ModelOptions>& named = named_model(options.named_model).shape;
  check_usage(!options.given.contains("model") || !named || is_same_shape(completed(*named), found),
              "--model ", options.named_model, " has another shape than the model of ", file,
              ": leave it out");
  visit_shape([&](const char* name, auto member) {
    take(taken, name, model.*member, found.*member, file);
  });
  take_context(taken, found, start.is_of_another_program(), file);
  const DataOptions& data = options.data;
  check_usage(model.vocab_size <= found.vocab_size, file, ": its model knows ", found.vocab_size,
              " token ids, but the data have ", model.vocab_size,
              data.vocab_size > 0 ? " (--vocab-size)" : ", those of --tokenizer " + data.tokenizer);
  model.vocab_size = found.vocab_size;
  try {
    check_ranges(taken);
    validate(taken.model);
  } catch (const UsageError& error) {  // the user has given none of it
    throw CheckError(concat(file, ": ", error.what()));
  }
  options = taken;
}

// What --model names, but for the options that the user has given as well. Its vocabulary may be
// larger than the data's.
void take_named_shape(TrainOptions& options, const ModelOptions& named) {
  ModelOptions& model = options.model;
  visit_shape([&](const char* option, auto member) {
    if (!options.given.contains(option)) model.*member = named.*member;
  });
  check_usage(model.vocab_size <= named.vocab_size, "--vocab-size ", model.vocab_size,
              " is more than the model of --model has, which knows ", named.vocab_size,
              " tokens; take data with fewer, or leave --model out and give a shape");
  model.vocab_size = named.vocab_size;
}

void finalize_model(TrainOptions& options, const Start& start) {
  ModelOptions& model = options.model;
  const NamedModel& named = named_model(options.named_model);
  if (options.given.contains("model")) model.family = named.family;
  const bool is_told_by_model = start.has_model() && needs_models_vocabulary(options.data);
  model.vocab_size = is_told_by_model ? 0 : vocab_size_of(options.data);
  if (start.has_model()) {
    take_shape(start, options);
    if (is_told_by_model) options.data.vocab_size = model.vocab_size;
  } else if (named.shape) {
    take_named_shape(options, *named.shape);
  } else if (options.given.contains("model") && !options.given.contains("no-rope-interval")) {
    model.no_rope_interval = traits_of(model.family).no_rope_interval();
  }
  if (!options.given.contains("model")) options.named_model = traits_of(model.family).name();
  validate(model);
}

// Exact sums deal whole microbatches out, so many of a step's to each rank.
void finalize_deal(TrainOptions& options) {
  DataOptions& data = options.data;
  data.deal = options.gradient_sum == SumMode::kExact ? Deal::kMicrobatches : Deal::kSamples;
  if (data.step_microbatches == 0) return;
  check_usage(!options.given.contains("num-microbatches"), "--microbatches-per-step ",
              data.step_microbatches, " and --num-microbatches ", data.num_microbatches,
              " both say how many microbatches a step has: give only one of them");
  const BatchShape batch = batch_shape(options);
  const int num_ranks = num_ranks_of(options);
  const int per_replica = batch.ranks_per_replica == 0 ? num_ranks : batch.ranks_per_replica;
  const std::int64_t num_parts = std::max(1, num_ranks / per_replica) * batch.flushes_per_step;
  data.num_microbatches = (data.step_microbatches + num_parts - 1) / num_parts;
  options.derived.insert("num-microbatches");
}

// Whether a tokenizer says what its tokens stand for, those to train on or those to validate with.
bool has_text(const DataOptions& data) {
  DataOptions validation = data;
  validation.source = data.validation_source;
  return !has_unknown_tokens(data) ||
         (!data.validation_source.empty() && !has_unknown_tokens(validation));
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
  return concat(path_.string(), ", a Hugging Face folder (", option_text(config.model.family), ")",
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
  check_ranges(options);
  options.derived.clear();
  if (!options.given.contains("products")) options.derived.insert("products");
  options.data.pretrained = options.output.init_from;
  options.data.tokenizer_files = has_text(options.data) ? read_tokenizer(options.data) : nullptr;
  finalize_model(options, *start);
  options.start = start;
  options.data.context = options.model.context;
  options.data.seed = options.optimizer.seed = options.seed;
  options.data.is_pinned = options.device.is_cuda();
  finalize_deal(options);
  options.own.finalize(options);
  check_together(options);
}

TrainOptions options_for(const Trainer& trainer, TrainOptions options) {
  options.step = trainer.step;
  options.own.keep_only(trainer.options.own);
  finalize(options);
  return options;
}

}  // namespace ladder
