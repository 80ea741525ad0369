// Llama (Touvron et al., arXiv 2302.13971 and 2307.09288): pre-norm blocks with RMSNorm, rotary
// positions, grouped-query attention and a SwiGLU. There are no biases. Weights are [out, in], as in
// Hugging Face's files.
//
// Its relatives (llama_traits.cpp) have what their traits say.

#include <algorithm>

#include "common/core/check.hpp"
#include "common/model/family.hpp"

namespace ladder {
namespace {

class Llama final : public Family {
 public:
  explicit Llama(const ModelOptions& options) : Family(options) {
    const std::int64_t d = options_.head_channels;
    const std::string cause =
        options.head_channels != 0
            ? concat("--head-channels ", options.head_channels)
            : concat("--channels ", options.channels, " and --heads ", options.heads);
    check_usage(d % 2 == 0, cause, " make heads of ", d,
                " channels; rotary positions turn pairs of them, so their number must be even");
  }

  // A part has rows of what its channels come from, and columns of what becomes of them.
  ParameterShapes block(std::int64_t index) const override {
    const std::int64_t C = options_.channels, M = options_.mlp_channels;
    const std::int64_t d = options_.head_channels;
    const std::int64_t A = options_.heads * d, kv_channels = options_.kv_heads * d;
    const std::string of_layer = concat("layers.", index, ".");
    ParameterShapes shapes;
    const auto from = [&](const std::string& name, std::int64_t n, std::int64_t grain) {
      shapes.push_back({of_layer + name + ".weight", {n, C}, cut_rows(n, C, grain), kInitStd});
    };
    const auto heads_from = [&](const std::string& name, std::int64_t n) {
      from(name, n, d);
      if (traits().has_qkv_bias())
        shapes.push_back({of_layer + name + ".bias", {n}, cut_columns(1, n, d)});
    };
    const auto into = [&](const std::string& name, std::int64_t n, std::int64_t grain) {
      shapes.push_back(
          {of_layer + name + ".weight", {C, n}, cut_columns(C, n, grain), residual_std(options_)});
    };
    const auto norm = [&](const std::string& name, std::int64_t channels) {
      shapes.push_back(norm_weight(of_layer + name, channels));
    };
    const bool is_after = traits().has_norms_after();
    const bool is_of_all = traits().qk_norm() == QkNorm::kOfAllHeads;
    norm(is_after ? "post_attention_layernorm" : "input_layernorm", C);
    heads_from("self_attn.q_proj", A);
    heads_from("self_attn.k_proj", kv_channels);
    heads_from("self_attn.v_proj", kv_channels);
    into("self_attn.o_proj", A, d);
    if (traits().qk_norm() != QkNorm::kNone) {
      norm("self_attn.q_norm", is_of_all ? A : d);
      norm("self_attn.k_norm", is_of_all ? kv_channels : d);
    }
    norm(is_after ? "post_feedforward_layernorm" : "post_attention_layernorm", C);
    from("mlp.gate_proj", M, 1);
    from("mlp.up_proj", M, 1);
    into("mlp.down_proj", M, 1);
    return shapes;
  }

  ParameterShapes final_norm() const override { return {norm_weight("norm", options_.channels)}; }

  // The gradient of the residual stream; four of the SwiGLU, which has a fifth number if 16 bits are
  // widened for it, or of queries, keys and values.
  std::int64_t working_bytes_of_block(AttentionPath path) const override {
    const std::int64_t C = options_.channels, M = options_.mlp_channels;
    const std::int64_t A = query_channels_of(options_);
    const std::int64_t bytes = options_.precision.has_16_bit_params()
                                   ? 4 * (C + std::max({5 * M, 8 * C, 8 * A}))
                                   : 4 * (C + std::max({4 * M, 6 * C, 6 * A}));
    return std::max(bytes, working_bytes_of_attention(options_, path));
  }

 private:
  static ParameterShape norm_weight(const std::string& name, std::int64_t channels) {
    return {.name = name + ".weight", .shape = {channels}, .value = 1};
  }
};

}  // namespace

std::unique_ptr<Family> make_llama(const ModelOptions& options) {
  return std::make_unique<Llama>(options);
}

}  // namespace ladder
