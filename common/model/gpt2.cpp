// GPT-2 (Radford et al. 2019): pre-norm blocks, tanh GELU, learned positions, biases everywhere.

#include <algorithm>

#include "common/core/check.hpp"
#include "common/core/cuda_device.hpp"
#include "common/model/attention.hpp"
#include "common/model/family.hpp"

namespace ladder {
namespace {

struct Gpt2Embedding {
  at::Tensor wte;  // [V, C] of tokens
  at::Tensor wpe;  // [context, C] of positions

  at::Tensor operator()(const at::Tensor& tokens) const {  // [B, T] int64 -> [B, T, C]
    return look_up(wte, to_device(tokens, wte.device())) + wpe.slice(/*dim=*/0, 0, tokens.size(1));
  }
};

struct Gpt2Block {
  LayerNorm ln_1;
  Attention attn;
  LayerNorm ln_2;
  Linear c_fc;    // [C] -> [M], 4C as a rule
  Linear c_proj;  // [M] -> [C]

  at::Tensor operator()(const at::Tensor& x) const {  // [B, T, C] -> [B, T, C]
    const auto [skip, n] = ln_1.fork(x);
    const auto [y, m] = ln_2.fork(skip, attn(n));
    return y + c_proj(gelu(c_fc, m));
  }
};

class Gpt2 final : public Family {
 public:
  explicit Gpt2(const ModelOptions& options)
      : Family(options, {.embedding_name = "wte.weight",
                         .norm_statistics = 2,
                         .mlp_matrices = 2,
                         .has_joint_qkv = true}) {
    check_usage(options.kv_heads == 0 || options.kv_heads == options.heads, "--kv-heads ",
                options.kv_heads, " is for --model llama: GPT-2 has as many as --heads ",
                options.heads);
    check_usage(options.rope_theta == ModelOptions().rope_theta, "--rope-theta ",
                options.rope_theta,
                " is for --model llama: GPT-2 has learned positions instead of rotary ones");
    options_.kv_heads = options.heads;
    if (options.mlp_channels == 0) options_.mlp_channels = 4 * options.channels;
  }

  Layer embedding(const ParameterMaker& make) const override {
    const std::int64_t C = options_.channels;
    Layer layer;
    layer.forward = Gpt2Embedding{
        .wte = make.normal(layer.unit, traits().embedding_name, {options_.vocab_size, C}),
        .wpe = make.normal(layer.unit, "wpe.weight", {options_.context, C})};
    return layer;
  }

  Layer block(const ParameterMaker& make, std::int64_t index) const override {
    const std::int64_t C = options_.channels, M = options_.mlp_channels;
    const std::string h = concat("h.", index, ".");
    const double residual = residual_std(options_);
    Layer layer;
    const auto linear = [&](const std::string& name, std::int64_t in, std::int64_t out,
                            double std) -> Linear {
      return {make.normal(layer.unit, name + ".weight", {in, out}, std),
              make.constant(layer.unit, name + ".bias", out, 0.0), options_.products};
    };
    layer.forward = Gpt2Block{.ln_1 = norm(make, layer.unit, h + "ln_1"),
                              .attn = {linear(h + "attn.c_attn", C, 3 * C, kInitStd),
                                       linear(h + "attn.c_proj", C, C, residual), options_.heads},
                              .ln_2 = norm(make, layer.unit, h + "ln_2"),
                              .c_fc = linear(h + "mlp.c_fc", C, M, kInitStd),
                              .c_proj = linear(h + "mlp.c_proj", M, C, residual)};
    return layer;
  }

  Layer final_norm(const ParameterMaker& make) const override {
    Layer layer;
    layer.forward = norm(make, layer.unit, "ln_f");
    return layer;
  }

  // The gradient of the residual stream; two of the MLP, or of queries, keys and values.
  std::int64_t working_bytes_of_block(AttentionPath path) const override {
    const std::int64_t C = options_.channels, M = options_.mlp_channels;
    const std::int64_t fp32 = 4 * (C + std::max(2 * M, 6 * C));
    const std::int64_t bytes = options_.precision.has_16_bit_params() ? 2 * fp32 : fp32;
    return std::max(bytes, working_bytes_of_attention(options_, path));
  }

 private:
  LayerNorm norm(const ParameterMaker& make, Unit& unit, const std::string& name) const {
    return {make.constant(unit, name + ".weight", options_.channels, 1.0),
            make.constant(unit, name + ".bias", options_.channels, 0.0), options_.norm_eps};
  }
};

}  // namespace

std::unique_ptr<Family> gpt2(const ModelOptions& options) {
  return std::make_unique<Gpt2>(options);
}

}  // namespace ladder
