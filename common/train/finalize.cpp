#include "common/train/finalize.hpp"

#include <algorithm>
#include <optional>
#include <type_traits>

#include "common/core/check.hpp"
#include "common/data/tokenizer_source.hpp"
#include "common/model/family.hpp"
#include "common/train/options/option_table.hpp"

namespace ladder {
namespace {

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
void take_shape(const StartModel& start, TrainOptions& options) {
  const auto& [found, file, is_of_another_program] = start;
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
  take_context(taken, found, is_of_another_program, file);
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

void finalize_model(TrainOptions& options, const StartFiles& files) {
  ModelOptions& model = options.model;
  const NamedModel& named = named_model(options.named_model);
  if (options.given.contains("model")) model.family = named.family;
  const bool is_told_by_model = files.model && needs_models_vocabulary(options.data);
  model.vocab_size = is_told_by_model ? 0 : vocab_size_of(options.data);
  if (files.model) {
    take_shape(files.model(), options);
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

}  // namespace

void finalize(TrainOptions& options, const StartFiles& files) {
  check_ranges(options);
  options.derived.clear();
  if (!options.given.contains("products")) options.derived.insert("products");
  options.data.pretrained = options.output.init_from;
  const bool has_files = files.tokenizer && has_text(options.data);
  options.data.tokenizer_files = has_files ? files.tokenizer(options.data) : nullptr;
  finalize_model(options, files);
  options.data.context = options.model.context;
  options.data.seed = options.optimizer.seed = options.seed;
  options.data.is_pinned = options.device.is_cuda();
  finalize_deal(options);
  options.own.finalize(options);
  check_together(options);
}

}  // namespace ladder
