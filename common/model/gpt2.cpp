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
  explicit Gpt2(const ModelOptions& options) : Family(options) {
    check_usage(options.kv_heads == 0 || options.kv_heads == options.heads, "--kv-heads ",
                options.kv_heads, " is for --model llama: GPT-2 has as many as --heads ",
                options.heads);
    check_usage(options.rope_theta == ModelOptions().rope_theta, "--rope-theta ",
                options.rope_theta,
                " is for --model llama: GPT-2 has learned positions instead of rotary ones");
    options_.kv_heads = options.heads;
    if (options.mlp_channels == 0) options_.mlp_channels = 4 * options.channels;
  }

  const char* embedding_name() const override { return "wte.weight"; }

  Layer embedding(const ParameterMaker& make, const at::Tensor& weight) const override {
    const at::Tensor wpe = make.normal("wpe.weight", {options_.context, options_.channels});
    return {{"", {{"wpe.weight", wpe}}}, Gpt2Embedding{weight, wpe}};
  }

  Layer block(const ParameterMaker& make, std::int64_t index) const override {
    const std::int64_t C = options_.channels, M = options_.mlp_channels;
    const std::string h = concat("h.", index, ".");
    const double residual = residual_std(options_);
    Layer layer;
    const auto named = [&](const std::string& name, const at::Tensor& tensor) {
      layer.unit.tensors.push_back({name, tensor});
      return tensor;
    };
    const auto norm = [&](const std::string& name) -> LayerNorm {
      return {named(name + ".weight", make.constant(C, 1.0)),
              named(name + ".bias", make.constant(C, 0.0)), options_.norm_eps};
    };
    const auto linear = [&](const std::string& name, std::int64_t in, std::int64_t out,
                            double std) -> Linear {
      return {named(name + ".weight", make.normal(name + ".weight", {in, out}, std)),
              named(name + ".bias", make.constant(out, 0.0)), options_.products};
    };
    layer.forward = Gpt2Block{.ln_1 = norm(h + "ln_1"),
                              .attn = {linear(h + "attn.c_attn", C, 3 * C, kInitStd),
                                       linear(h + "attn.c_proj", C, C, residual), options_.heads},
                              .ln_2 = norm(h + "ln_2"),
                              .c_fc = linear(h + "mlp.c_fc", C, M, kInitStd),
                              .c_proj = linear(h + "mlp.c_proj", M, C, residual)};
    return layer;
  }

  Layer final_norm(const ParameterMaker& make) const override {
    const LayerNorm ln_f{make.constant(options_.channels, 1.0),
                         make.constant(options_.channels, 0.0), options_.norm_eps};
    return {{"", {{"ln_f.weight", ln_f.weight}, {"ln_f.bias", ln_f.bias}}}, ln_f};
  }

  // A LayerNorm saves its input and two fp32 statistics; a product and GELU save their inputs.
  std::int64_t saved_bytes_of_block(AttentionPath path) const override {
    const std::int64_t C = options_.channels, M = options_.mlp_channels;
    const std::int64_t e = options_.precision.param_bytes();  // of an activation
    const std::int64_t attention =
        saved_bytes_of_final_norm() + e * C + saved_bytes_of_attention(options_, path) + e * C;
    const std::int64_t mlp =
        saved_bytes_of_final_norm() + e * C + e * M + e * M;  // ln_2, c_fc, gelu, c_proj
    return attention + mlp;
  }

  std::int64_t saved_bytes_of_final_norm() const override {
    return options_.precision.param_bytes() * options_.channels + 2 * 4;
  }

  // The gradient of the residual stream; two of the MLP, or of queries, keys and values.
  std::int64_t working_bytes_of_block(AttentionPath path) const override {
    const std::int64_t C = options_.channels, M = options_.mlp_channels;
    const std::int64_t fp32 = 4 * (C + std::max(2 * M, 6 * C));
    const std::int64_t bytes = options_.precision.has_16_bit_params() ? 2 * fp32 : fp32;
    return std::max(bytes, working_bytes_of_attention(options_, path));
  }

  std::int64_t largest_matrix_of_block() const override {
    return options_.channels * std::max(options_.mlp_channels, 3 * options_.channels);
  }

  std::int64_t flops_of_block() const override {
    const std::int64_t C = options_.channels, M = options_.mlp_channels;
    const std::int64_t products = C * 3 * C + C * C + C * M + M * C;
    const std::int64_t attention = 2 * C * options_.context;
    return 2 * (products + attention);
  }

  bool has_joint_qkv() const override { return true; }
};

}  // namespace

std::unique_ptr<Family> gpt2(const ModelOptions& options) {
  return std::make_unique<Gpt2>(options);
}

}  // namespace ladder
