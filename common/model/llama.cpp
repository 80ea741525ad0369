// Llama (Touvron et al., arXiv 2302.13971 and 2307.09288): pre-norm blocks with RMSNorm, rotary
// positions, grouped-query attention and a SwiGLU. There are no biases. Weights are [out, in], as in
// Hugging Face's files.

#include <algorithm>

#include "common/core/check.hpp"
#include "common/core/cuda_device.hpp"
#include "common/model/attention.hpp"
#include "common/model/family.hpp"
#include "common/model/llama_layers.hpp"

namespace ladder {
namespace {

struct LlamaBlock {
  RmsNorm input_layernorm;
  at::Tensor q_proj;  // [C, C]
  at::Tensor k_proj;  // [K·d, C]
  at::Tensor v_proj;  // [K·d, C]
  at::Tensor o_proj;  // [C, C]
  RmsNorm post_attention_layernorm;
  at::Tensor gate_proj;  // [M, C]
  at::Tensor up_proj;    // [M, C]
  at::Tensor down_proj;  // [C, M]
  RotaryPositions rotary;
  std::int64_t head_channels;  // d
  Products products;

  at::Tensor operator()(const at::Tensor& x) const {  // [B, T, C] -> [B, T, C]
    const at::Tensor y = x + attention(input_layernorm(x));
    return y + mlp(post_attention_layernorm(y));
  }

  at::Tensor attention(const at::Tensor& x) const {
    const auto heads = [&](const at::Tensor& weight) {  // [B, T, C] -> [B, T, H or K, d]
      return project(x, weight, products).view({x.size(0), x.size(1), -1, head_channels});
    };
    const at::Tensor q = rotary(heads(q_proj)), k = rotary(heads(k_proj));
    return project(causal_attention(q, k, heads(v_proj)), o_proj, products);
  }

  at::Tensor mlp(const at::Tensor& x) const {
    const at::Tensor gate = project(x, gate_proj, products);
    return project(swiglu(gate, project(x, up_proj, products)), down_proj, products);
  }
};

// 8C/3, rounded up to a multiple of 32: with three matrices, about as many parameters as GPT-2's
// two with 4C.
std::int64_t default_mlp_channels(std::int64_t channels) {
  return (8 * channels + 95) / 96 * 32;
}

class Llama final : public Family {
 public:
  explicit Llama(const ModelOptions& options)
      : Family(options, {.embedding_name = "embed_tokens.weight",
                         .norm_statistics = 1,
                         .mlp_matrices = 3,
                         .has_joint_qkv = false}),
        head_channels_(options.channels / options.heads),
        rotary_(options.context, head_channels_, options.rope_theta) {
    check_usage(head_channels_ % 2 == 0, "--channels ", options.channels, " and --heads ",
                options.heads, " make heads of ", head_channels_,
                " channels; rotary positions turn pairs of them, so their number must be even");
    if (options.kv_heads == 0) options_.kv_heads = options.heads;
    check_usage(options.heads % options_.kv_heads == 0, "--heads ", options.heads,
                " is not a multiple of --kv-heads ", options.kv_heads);
    if (options.mlp_channels == 0) options_.mlp_channels = default_mlp_channels(options.channels);
  }

  Layer embedding(const ParameterMaker& make) const override {
    Layer layer;
    const at::Tensor weight =
        make.normal(layer.unit, traits().embedding_name, {options_.vocab_size, options_.channels});
    layer.forward = [weight](const at::Tensor& tokens) {
      return look_up(weight, to_device(tokens, weight.device()));
    };
    return layer;
  }

  Layer block(const ParameterMaker& make, std::int64_t index) const override {
    const std::int64_t C = options_.channels, M = options_.mlp_channels;
    const std::int64_t kv_channels = options_.kv_heads * head_channels_;
    const std::string of_layer = concat("layers.", index, ".");
    const double residual = residual_std(options_);
    Layer layer;
    const auto matrix = [&](const char* name, std::int64_t out, std::int64_t in, double std) {
      return make.normal(layer.unit, of_layer + name + ".weight", {out, in}, std);
    };
    layer.forward = LlamaBlock{
        .input_layernorm = norm(make, layer.unit, of_layer + "input_layernorm"),
        .q_proj = matrix("self_attn.q_proj", C, C, kInitStd),
        .k_proj = matrix("self_attn.k_proj", kv_channels, C, kInitStd),
        .v_proj = matrix("self_attn.v_proj", kv_channels, C, kInitStd),
        .o_proj = matrix("self_attn.o_proj", C, C, residual),
        .post_attention_layernorm = norm(make, layer.unit, of_layer + "post_attention_layernorm"),
        .gate_proj = matrix("mlp.gate_proj", M, C, kInitStd),
        .up_proj = matrix("mlp.up_proj", M, C, kInitStd),
        .down_proj = matrix("mlp.down_proj", C, M, residual),
        .rotary = rotary_,
        .head_channels = head_channels_,
        .products = options_.products};
    return layer;
  }

  Layer final_norm(const ParameterMaker& make) const override {
    Layer layer;
    layer.forward = norm(make, layer.unit, "norm");
    return layer;
  }

  // The gradient of the residual stream; four of the SwiGLU, which has a fifth number if 16 bits are
  // widened for it, or of queries, keys and values.
  std::int64_t working_bytes_of_block(AttentionPath path) const override {
    const std::int64_t C = options_.channels, M = options_.mlp_channels;
    const std::int64_t bytes = options_.precision.has_16_bit_params()
                                   ? 4 * (C + std::max(5 * M, 8 * C))
                                   : 4 * (C + std::max(4 * M, 6 * C));
    return std::max(bytes, working_bytes_of_attention(options_, path));
  }

 private:
  RmsNorm norm(const ParameterMaker& make, Unit& unit, const std::string& name) const {
    return {make.constant(unit, name + ".weight", options_.channels, 1.0), options_.norm_eps};
  }

  std::int64_t head_channels_;
  RotaryPositions rotary_;
};

}  // namespace

std::unique_ptr<Family> llama(const ModelOptions& options) {
  return std::make_unique<Llama>(options);
}

}  // namespace ladder
