#include "common/train/pretrained/pretrained.hpp"

#include <filesystem>
#include <map>
#include <memory>
#include <optional>

#include "common/core/check.hpp"
#include "common/data/bpe/bpe_files.hpp"
#include "common/data/tokenizer_source.hpp"
#include "common/model/build_layers.hpp"
#include "common/train/checkpoint/checkpoint.hpp"
#include "common/train/checkpoint/disk.hpp"
#include "common/train/options/option_table.hpp"
#include "common/train/options/shape_options.hpp"
#include "common/train/pretrained/checkpoint_model.hpp"
#include "common/train/pretrained/hugging_face_folder.hpp"
#include "common/train/pretrained/llm_c_file.hpp"
#include "common/train/pretrained/model_config.hpp"

namespace ladder {
namespace {

namespace fs = std::filesystem;

constexpr std::uintmax_t kMostConfigBytes = 1 << 20;

bool is_llm_c(const fs::path& path) {
  std::error_code ignored;
  return fs::is_regular_file(path, ignored);
}

bool is_hugging_face(const fs::path& path) {
  std::error_code ignored;
  return fs::exists(path / "config.json", ignored) && !fs::exists(path / "state.json", ignored);
}

bool has_checkpoint(const fs::path& path) {
  std::error_code ignored;
  return fs::exists(path / "state.json", ignored) || newest_checkpoint(path);
}

// The file that tells the shape.
fs::path shape_file(const fs::path& path) {
  if (is_llm_c(path)) return path;
  if (is_hugging_face(path)) return path / "config.json";
  return checkpoint_in("--init-from", path) / "state.json";
}

ModelConfig read_config(const fs::path& path) {
  if (is_llm_c(path)) return {LlmCFile(path).model()};
  const fs::path file = shape_file(path);
  if (!is_hugging_face(path)) return {model_of_checkpoint(file.parent_path())};
  return parse_model_config(read_text_file(file, kMostConfigBytes), file);
}

std::unique_ptr<PretrainedWeights> open_weights(const fs::path& path, bool has_tied_head) {
  if (is_llm_c(path)) return std::make_unique<LlmCFile>(path);
  return std::make_unique<HuggingFaceFolder>(path, has_tied_head);
}

std::string to_text(ModelFamily family) {
  return family == ModelFamily::kGpt2 ? "gpt2" : "llama";
}
std::string to_text(bool value) {
  return value ? "true" : "false";
}
template <class Number>
std::string to_text(Number value) {
  return concat(value);
}

// Sets options of the shape, unless they were given and say something else.
class ShapeTaker {
 public:
  ShapeTaker(TrainOptions& options, std::string file) : options_(options), file_(std::move(file)) {}

  template <class Value>
  void take(const char* name, Value& member, const Value& value) const {
    check_usage(!options_.given.contains(name) || member == value, "--", name, " ", to_text(member),
                " contradicts ", file_, ", whose model has ", to_text(value), ": leave it out");
    member = value;
    options_.derived.insert(name);
  }

  void take_context(const ModelOptions& longest) const {
    std::int64_t& context = options_.model.context;
    check_usage(!options_.given.contains("context") || context <= longest.context, "--context ",
                context, " is longer than the model of ", file_, " can read: at most ",
                longest.context);
    const bool is_learned = longest.family == ModelFamily::kGpt2;
    if (!options_.given.contains("context"))
      context = is_learned ? longest.context : std::min(context, longest.context);
  }

  // Learned positions of a run of ours stay as they are; rotary ones may be more or fewer.
  void take_own_context(const ModelOptions& trained) const {
    if (trained.family == ModelFamily::kGpt2)
      take("context", options_.model.context, trained.context);
    else if (!options_.given.contains("context"))
      options_.model.context = trained.context;
  }

  void take_vocabulary(std::int64_t size) const {
    const std::int64_t in_data = options_.model.vocab_size;
    check_usage(in_data <= size, file_, ": its model knows ", size,
                " token ids, but the data have ", in_data,
                options_.data.vocab_size > 0 ? " (--vocab-size)" : ", those of --tokenizer ",
                options_.data.vocab_size > 0 ? "" : options_.data.tokenizer);
    options_.model.vocab_size = size;
  }

 private:
  TrainOptions& options_;
  std::string file_;
};

// The shape of a model that --model names.
bool is_same_shape(const ModelOptions& a, const ModelOptions& b) {
  return a.vocab_size == b.vocab_size && a.layers == b.layers && a.heads == b.heads &&
         a.kv_heads == b.kv_heads && a.channels == b.channels && a.mlp_channels == b.mlp_channels &&
         a.tie_embeddings == b.tie_embeddings && a.rope_theta == b.rope_theta &&
         a.norm_eps == b.norm_eps;
}

std::string sizes(const std::vector<std::int64_t>& shape) {
  return concat(at::IntArrayRef(shape));
}

// Positions that the run does not use may be there.
bool fits(const PretrainedTensor& found, const StoredTensor& wanted) {
  std::vector<std::int64_t> shape = found.shape;
  if (found.name == "wpe.weight" && !shape.empty() && !wanted.shape.empty())
    shape[0] = std::min(shape[0], wanted.shape[0]);
  return shape == wanted.shape;
}

void check_fits(const std::vector<PretrainedTensor>& found, const StateTensors& wanted,
                const std::string& from) {
  std::map<std::string, const PretrainedTensor*> by_name;
  for (const PretrainedTensor& tensor : found) by_name[tensor.name] = &tensor;
  for (const StoredTensor& tensor : wanted.stored) {
    const auto place = by_name.find(tensor.name);
    check(place != by_name.end(), from, ": holds no tensor \"", tensor.name,
          "\", which this model needs");
    check(fits(*place->second, tensor), place->second->file, ": \"", tensor.name,
          "\" has the shape ", sizes(place->second->shape), ", the model needs ",
          sizes(tensor.shape));
    by_name.erase(place);
  }
  if (by_name.empty()) return;
  const PretrainedTensor& extra = *by_name.begin()->second;
  throw CheckError(concat(extra.file, ": holds \"", excerpt(extra.name),
                          "\", which this model has no place for"));
}

}  // namespace

bool starts_from_pretrained(const TrainOptions& options) {
  const fs::path path = options.output.init_from;
  return is_llm_c(path) || is_hugging_face(path);
}

bool starts_with_shape(const TrainOptions& options) {
  const std::string& path = options.output.init_from;
  return !path.empty() && (starts_from_pretrained(options) || has_checkpoint(path));
}

void check_start(const TrainOptions& options) {
  const fs::path path = options.output.init_from;
  if (path.empty()) return;
  std::error_code ignored;
  check_usage(fs::exists(path, ignored), "--init-from ", path.string(),
              ": no such file or folder. ", how_to_fetch(path));
  if (!starts_from_pretrained(options)) {
    const std::string& out = options.output.out;
    const bool is_own = !out.empty() && lies_in(path, out);  // then Run says so
    if (!is_own) checkpoint_in("--init-from", path);
    return;
  }
  DataOptions data = options.data;
  data.pretrained = path;
  for (const std::string& source : {options.data.source, options.data.validation_source}) {
    data.source = source;
    check_usage(
        source.empty() || has_unknown_tokens(data) || is_tokenizer_named(data), "--init-from ",
        path.string(), ": brings no tokenizer.json, so nothing says which ",
        "tokens its model has for the text of ", source,
        ": give --tokenizer FOLDER with its tokenizer's files, or --tokenizer bytes if the ",
        "model is to learn bytes as tokens");
  }
}

void take_shape(TrainOptions& options) {
  const fs::path path = options.output.init_from;
  const ModelOptions found = read_config(path).model;
  const std::string file = shape_file(path);
  TrainOptions taken = options;
  ModelOptions& model = taken.model;
  const ShapeTaker shape(taken, file);
  shape.take("model", model.family, found.family);
  const std::optional<ModelOptions> named = shape_of(options.named_model);
  check_usage(
      !options.given.contains("model") || !named || is_same_shape(*named, found), "--model ",
      [&] { return to_json(options)["model"].get<std::string>(); },
      " has another shape than the model of ", file, ": leave it out");
  visit_shape(model, found, [&](const char* name, auto& member, const auto& value) {
    shape.take(name, member, value);
  });
  starts_from_pretrained(options) ? shape.take_context(found) : shape.take_own_context(found);
  shape.take_vocabulary(found.vocab_size);
  try {
    check_ranges(taken);
    validate(taken.model);
  } catch (const UsageError& error) {  // the user has given none of it
    throw CheckError(concat(file, ": ", error.what()));
  }
  options = taken;
}

std::string load_pretrained(const TrainOptions& options, const StateTensors& parameters) {
  const fs::path path = options.output.init_from;
  const auto weights = open_weights(path, options.model.tie_embeddings);
  check_fits(weights->tensors(), parameters, path.string());
  TensorHash hash;
  for (const StoredTensor& tensor : parameters.stored) {
    parameters.fill(tensor.name, [&](const std::string& name, const at::Tensor& values) {
      weights->read(name, values);
      hash.update(name, values);
    });
  }
  return hash.digest();
}

std::string describe_pretrained(const TrainOptions& options) {
  const fs::path path = options.output.init_from;
  if (is_llm_c(path)) return concat(path.string(), ", a GPT-2 of llm.c");
  const ModelConfig config = read_config(path);
  return concat(path.string(), ", a Hugging Face folder (", to_text(config.model.family), ")",
                config.has_dropout ? "; its config.json asks for dropout, and here training is "
                                     "without"
                                   : "");
}

}  // namespace ladder
