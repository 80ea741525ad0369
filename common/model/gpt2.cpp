// GPT-2 (Radford et al. 2019): pre-norm blocks, GELU, learned positions, biases everywhere.

#include <algorithm>

#include "common/core/check.hpp"
#include "common/model/config_reader.hpp"
#include "common/model/family.hpp"

namespace ladder {
namespace {

class Gpt2 final : public Family {
 public:
  explicit Gpt2(const ModelOptions& options) : Family(options) {}

  ParameterShapes embedding() const override {
    return {token_embedding(),
            {traits().positions_name(), {options_.context, options_.channels}, {}, kInitStd}};
  }

  // Each part has columns of the first product and its bias, and rows of the second one. The second
  // bias is added once: to the sum, if there is one.
  ParameterShapes block(std::int64_t index) const override {
    const std::int64_t C = options_.channels, M = options_.mlp_channels;
    const std::int64_t d = C / options_.heads;
    const std::string h = concat("h.", index, ".");
    ParameterShapes shapes;
    const auto columns = [&](const std::string& name, std::int64_t num_matrices, std::int64_t n,
                             std::int64_t grain) {
      const std::int64_t out = num_matrices * n;
      shapes.push_back(
          {h + name + ".weight", {C, out}, cut_columns(C, out, grain, num_matrices), kInitStd});
      shapes.push_back({h + name + ".bias", {out}, cut_columns(1, out, grain, num_matrices)});
    };
    const auto rows = [&](const std::string& name, std::int64_t n, std::int64_t grain) {
      shapes.push_back(
          {h + name + ".weight", {n, C}, cut_rows(n, C, grain), residual_std(options_)});
      shapes.push_back({h + name + ".bias", {C}});
    };
    add_norm(shapes, h + "ln_1");
    columns("attn.c_attn", 3, C, d);
    rows("attn.c_proj", C, d);
    add_norm(shapes, h + "ln_2");
    columns("mlp.c_fc", 1, M, 1);
    rows("mlp.c_proj", M, 1);
    return shapes;
  }

  ParameterShapes final_norm() const override {
    ParameterShapes shapes;
    add_norm(shapes, "ln_f");
    return shapes;
  }

  // The gradient of the residual stream; two of the MLP, or of queries, keys and values.
  std::int64_t working_bytes_of_block(AttentionPath path) const override {
    const std::int64_t C = options_.channels, M = options_.mlp_channels;
    const std::int64_t fp32 = 4 * (C + std::max(2 * M, 6 * C));
    const std::int64_t bytes = options_.precision.has_16_bit_params() ? 2 * fp32 : fp32;
    return std::max(bytes, working_bytes_of_attention(options_, path));
  }

 private:
  void add_norm(ParameterShapes& shapes, const std::string& name) const {
    shapes.push_back({.name = name + ".weight", .shape = {options_.channels}, .value = 1});
    shapes.push_back({.name = name + ".bias", .shape = {options_.channels}});
  }
};

class Gpt2Traits final : public FamilyTraits {
 public:
  const char* name() const override { return "gpt2"; }
  const char* prefix() const override { return "transformer."; }
  const char* embedding_name() const override { return "wte.weight"; }
  const char* positions_name() const override { return "wpe.weight"; }
  bool has_kv_heads() const override { return false; }
  bool has_joint_qkv() const override { return true; }
  std::int64_t mlp_matrices() const override { return 2; }
  std::int64_t norm_statistics() const override { return 2; }

  std::unique_ptr<Family> make(const ModelOptions& options) const override {
    return std::make_unique<Gpt2>(options);
  }

  ModelConfig read(ConfigReader& config) const override {
    // All but the first two are names of one function.
    config.only("activation_function", {"gelu", "gelu_python", "gelu_new", "gelu_pytorch_tanh",
                                        "gelu_python_tanh", "gelu_fast", "gelu_accurate"});
    config.ignore({"n_ctx", "reorder_and_upcast_attn", "predict_special_tokens",
                   "summary_activation", "summary_first_dropout", "summary_proj_to_labels",
                   "summary_type", "summary_use_proj"});
    config.only_all("architectures", "GPT2");
    config.only("scale_attn_weights", {true});
    config.only("scale_attn_by_inverse_layer_idx", {false});
    ModelOptions model;
    model.vocab_size = config.extent("vocab_size", 50257);
    model.context = config.extent("n_positions", 1024);
    model.layers = config.extent("n_layer", 12);
    model.heads = config.extent("n_head", 12);
    model.channels = config.extent("n_embd", 768);
    const std::int64_t usual = 4 * model.channels;
    model.mlp_channels = config.extent("n_inner", usual, /*if_null=*/usual);
    model.norm_eps = config.positive("layer_norm_epsilon", 1e-5);
    constexpr const char* kActivation = "activation_function";
    const std::string gelu = config.has(kActivation) ? config.text(kActivation) : "gelu_new";
    if (gelu == "gelu" || gelu == "gelu_python") model.gelu = GeluForm::kExact;
    model.tie_embeddings = config.flag("tie_word_embeddings", true);
    return {model, config.is_one_not_zero({"resid_pdrop", "embd_pdrop", "attn_pdrop"})};
  }

  Json write(const ModelOptions& model) const override {
    const bool is_usual = model.mlp_channels == 4 * model.channels;
    return {{"architectures", {"GPT2LMHeadModel"}},
            {"vocab_size", model.vocab_size},
            {"n_positions", model.context},
            {"n_layer", model.layers},
            {"n_head", model.heads},
            {"n_embd", model.channels},
            {"n_inner", is_usual ? Json() : Json(model.mlp_channels)},
            {"activation_function", model.gelu == GeluForm::kExact ? "gelu" : "gelu_new"},
            {"layer_norm_epsilon", model.norm_eps},
            {"resid_pdrop", 0.0},
            {"embd_pdrop", 0.0},
            {"attn_pdrop", 0.0}};
  }

  // The causal mask of each block.
  bool is_buffer(const std::string& name) const override {
    return name.ends_with(".attn.bias") || name.ends_with(".attn.masked_bias");
  }
};

}  // namespace

const FamilyTraits& gpt2() {
  static const Gpt2Traits kTraits;
  return kTraits;
}

}  // namespace ladder
