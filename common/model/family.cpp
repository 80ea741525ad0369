#include "common/model/family.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

#include "common/core/check.hpp"
#include "common/core/listed.hpp"
#include "common/model/rope_scaling.hpp"

namespace ladder {

// Each in the family's own file.
const FamilyTraits& gpt2();
const FamilyTraits& llama();
const FamilyTraits& qwen2();
const FamilyTraits& qwen3();
const FamilyTraits& mistral();
const FamilyTraits& smollm3();
const FamilyTraits& olmo2();

namespace {

struct Row {
  ModelFamily family;
  const FamilyTraits& (*traits)();
};
constexpr Row kFamilies[] = {{ModelFamily::kGpt2, gpt2},       {ModelFamily::kLlama, llama},
                             {ModelFamily::kQwen2, qwen2},     {ModelFamily::kQwen3, qwen3},
                             {ModelFamily::kMistral, mistral}, {ModelFamily::kSmolLm3, smollm3},
                             {ModelFamily::kOlmo2, olmo2}};

constexpr bool has_all_families() {
  int family = 0;
  for (const Row& row : kFamilies)
    if (row.family != ModelFamily{family++}) return false;
  return ModelFamily{family} == ModelFamily::kNumFamilies;
}
static_assert(has_all_families(), "kFamilies needs a row for each value of ModelFamily, in order");

// With a gate, the MLP has a third matrix. Then 8C/3, rounded up to a multiple of 32, makes about
// as many parameters as two matrices with 4C.
std::int64_t default_mlp_channels(std::int64_t channels, std::int64_t num_matrices) {
  return num_matrices == 3 ? (8 * channels + 95) / 96 * 32 : 4 * channels;
}

// The families that have what this one lacks.
template <class Has>
std::string families_with(Has FamilyTraits::*has) {
  std::vector<const char*> names;
  for (const Row& row : kFamilies)
    if ((row.traits().*has)() != 0) names.push_back(row.traits().name());
  return listed(names);
}

// Options of some families only.
void check_fits(const ModelOptions& options, const FamilyTraits& traits) {
  const bool has_kv_heads = options.kv_heads != 0 && options.kv_heads != options.heads;
  check_usage(
      !has_kv_heads || traits.has_kv_heads(), "--kv-heads ", options.kv_heads, " is for --model ",
      [] { return families_with(&FamilyTraits::has_kv_heads); }, ": ", traits.name(),
      " has as many as --heads ", options.heads);
  check_usage(!has_kv_heads || options.heads % options.kv_heads == 0, "--heads ", options.heads,
              " is not a multiple of --kv-heads ", options.kv_heads);
  const std::int64_t kv_heads = options.kv_heads != 0 ? options.kv_heads : options.heads;
  const std::int64_t parts = options.product_parts;
  check_usage(parts >= 1, "--product-parts is ", parts, ", it must be at least 1");
  check_usage(kv_heads % parts == 0, "--product-parts ", parts, " does not divide the ", kv_heads,
              " heads of keys and values, of which each part needs whole ones");
  check_usage(parts <= options.vocab_size, "--product-parts ", parts,
              " cuts the vocabulary, which has only ", options.vocab_size, " tokens");
  check_usage(parts == 1 || traits.qk_norm() != QkNorm::kOfAllHeads, "--product-parts ", parts,
              " (by default as many as --tensor-ranks) cuts the heads, but ", traits.name(),
              " has one norm over the queries of all heads, and one over their keys: leave ",
              "both options out, or take another --model");
  parse_rope_scaling(options.rope_scaling);  // throws for what is none
  const auto check_is_rotary = [&](bool is_default, const char* option, const auto& value) {
    check_usage(
        is_default || traits.has_rotary_positions(), option, " ", value, " is for --model ",
        [] { return families_with(&FamilyTraits::has_rotary_positions); }, ": ", traits.name(),
        " has learned positions instead of rotary ones");
  };
  const ModelOptions usual;
  check_is_rotary(options.rope_theta == usual.rope_theta, "--rope-theta", options.rope_theta);
  check_is_rotary(options.rope_scaling == usual.rope_scaling, "--rope-scaling",
                  options.rope_scaling);
  const std::int64_t interval = options.no_rope_interval;
  check_usage(
      interval == 0 || traits.no_rope_interval() != 0, "--no-rope-interval ", interval,
      " is for --model ", [] { return families_with(&FamilyTraits::no_rope_interval); },
      ": all layers of ", traits.name(), " have positions");
  check_usage(options.gelu == usual.gelu || traits.mlp_matrices() == 2, "--gelu ",
              gelu_name(options.gelu), " is for --model gpt2: ", traits.name(),
              "'s MLP has a SwiGLU instead");
  check_usage(
      !traits.has_joint_qkv() || query_channels_of(options) == options.channels, "--head-channels ",
      options.head_channels, " is for --model ",
      [] { return families_with(&FamilyTraits::has_kv_heads); }, ": ", traits.name(),
      "'s heads have --channels ", options.channels, " / --heads ", options.heads);
}

}  // namespace

const FamilyTraits& traits_of(ModelFamily family) {
  for (const Row& row : kFamilies)
    if (row.family == family) return row.traits();
  throw CheckError("there is no such family of models");
}

std::vector<ModelFamily> all_families() {
  std::vector<ModelFamily> families;
  for (const Row& row : kFamilies) families.push_back(row.family);
  return families;
}

std::unique_ptr<Family> family_of(const ModelOptions& options) {
  const auto check_positive = [](const char* option, std::int64_t value) {
    check_usage(value > 0, option, " is ", value, ", it must be at least 1");
  };
  check_positive("--vocab-size", options.vocab_size);
  check_positive("--context", options.context);
  check_positive("--layers", options.layers);
  check_positive("--heads", options.heads);
  check_positive("--channels", options.channels);
  check_usage(options.head_channels != 0 || options.channels % options.heads == 0, "--channels ",
              options.channels, " is not a multiple of --heads ", options.heads);
  const FamilyTraits& traits = traits_of(options.family);
  check_fits(options, traits);
  return traits.make(options);
}

Family::Family(const ModelOptions& options)
    : options_(options), traits_(traits_of(options.family)) {
  if (options.kv_heads == 0) options_.kv_heads = options.heads;
  options_.head_channels = head_channels_of(options);
  if (options.mlp_channels == 0)
    options_.mlp_channels = default_mlp_channels(options.channels, traits_.mlp_matrices());
}

double residual_std(const ModelOptions& options) {
  return kInitStd / std::sqrt(2.0 * static_cast<double>(options.layers));
}

ParameterShape Family::token_embedding() const {
  const std::int64_t V = options_.vocab_size, C = options_.channels;
  return {traits_.embedding_name(), {V, C}, cut_rows(V, C, /*grain=*/1), kInitStd};
}

ParameterShape Family::head() const {
  ParameterShape weight = token_embedding();
  if (!options_.tie_embeddings) weight.name = "lm_head.weight";
  return weight;
}

// A product saves its input, which queries, keys and values share; GELU saves its input, too, and
// the SwiGLU both of its. So an MLP saves as many of its channels as it has matrices.
std::int64_t Family::saved_bytes_of_block(AttentionPath path) const {
  const std::int64_t C = options_.channels, M = options_.mlp_channels;
  const std::int64_t A = query_channels_of(options_);
  return 2 * saved_bytes_of_norm() + saved_bytes_of_attention(options_, path) +
         options_.precision.param_bytes() * (2 * C + A + traits_.mlp_matrices() * M);
}

// The norms, and what they make, which the first products save.
std::int64_t Family::saved_bytes_of_all_parts() const {
  return 2 * (saved_bytes_of_norm() + options_.precision.param_bytes() * options_.channels);
}

std::int64_t Family::saved_bytes_of_norm() const {
  return options_.precision.param_bytes() * options_.channels + 4 * traits_.norm_statistics();
}

std::int64_t Family::bytes_of_cheap_outputs() const {
  const std::int64_t norms = traits_.has_norms_after() ? 0 : 2 * options_.channels;
  return options_.precision.param_bytes() * (norms + options_.mlp_channels);
}

std::int64_t Family::largest_matrix_of_block() const {
  const std::int64_t A = query_channels_of(options_);
  return options_.channels * std::max(options_.mlp_channels, traits_.has_joint_qkv() ? 3 * A : A);
}

std::int64_t Family::flops_of_block() const {
  const std::int64_t C = options_.channels, A = query_channels_of(options_);
  const std::int64_t kv_channels = options_.kv_heads * options_.head_channels;
  const std::int64_t products =
      C * (2 * A + 2 * kv_channels + traits_.mlp_matrices() * options_.mlp_channels);
  const std::int64_t attention = 2 * A * options_.context;
  return 2 * (products + attention);
}

std::int64_t Family::flops_of_head() const {
  return 2 * options_.channels * options_.vocab_size;
}

void validate(const ModelOptions& options) {
  family_of(options);
}

ModelOptions completed(const ModelOptions& options) {
  return family_of(options)->options();
}

std::int64_t training_flops(const ModelOptions& options) {
  const std::unique_ptr<Family> family = family_of(options);
  return 3 * (options.layers * family->flops_of_block() + family->flops_of_head());
}

}  // namespace ladder
