#include "common/model/gpt.hpp"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/gelu.h>

#include <cmath>
#include <numeric>

#include "common/core/check.hpp"
#include "common/core/cuda_device.hpp"
#include "common/core/memory_ledger.hpp"
#include "common/core/seed.hpp"

namespace ladder {
namespace {

constexpr double kInitStd = 0.02;

// Creates the parameters of one model, each from its own random stream.
class ParameterMaker {
 public:
  ParameterMaker(std::uint64_t seed, at::Device device, const ModelOptions& options)
      : seed_(seed), device_(device), options_(options) {}

  at::Tensor normal(const std::string& name, at::IntArrayRef shape, double std) const {
    at::Tensor tensor = empty(shape);
    if (!tensor.is_meta()) {
      tensor.normal_(0.0, std, at::make_generator<at::CPUGeneratorImpl>(derive_seed(seed_, name)));
    }
    return parameter(tensor);
  }

  at::Tensor constant(std::int64_t numel, double value) const {
    return parameter(empty({numel}).fill_(value));
  }

  LayerNorm layer_norm(std::int64_t channels) const {
    return {constant(channels, 1.0), constant(channels, 0.0)};
  }

  Linear linear(const std::string& name, std::int64_t in, std::int64_t out, double std) const {
    return {normal(name + ".weight", {in, out}, std), constant(out, 0.0), options_.products};
  }

 private:
  at::Tensor empty(at::IntArrayRef shape) const {
    return at::empty(shape, at::TensorOptions().dtype(at::kFloat).device(device_));
  }

  // Rounds initial values, which are the same in every precision.
  at::Tensor parameter(const at::Tensor& values) const {
    const Precision& precision = options_.precision;
    at::Tensor leaf = values.to(precision.params).set_requires_grad(true);
    if (precision.grads != precision.params) leaf.set_grad_dtype(precision.grads);
    return leaf;
  }

  std::uint64_t seed_;
  at::Device device_;
  const ModelOptions& options_;
};

struct Embedding {
  at::Tensor wte;  // [V, C] of tokens
  at::Tensor wpe;  // [context, C] of positions

  at::Tensor operator()(const at::Tensor& tokens) const {  // [B, T] int64 -> [B, T, C]
    return look_up(wte, to_device(tokens, wte.device())) + wpe.slice(/*dim=*/0, 0, tokens.size(1));
  }
};

struct Block {
  LayerNorm ln_1;
  Attention attn;
  LayerNorm ln_2;
  Linear c_fc;    // [C] -> [4C]
  Linear c_proj;  // [4C] -> [C]

  at::Tensor operator()(const at::Tensor& x) const {  // [B, T, C] -> [B, T, C]
    const at::Tensor y = x + attn(ln_1(x));
    return y + c_proj(at::gelu(c_fc(ln_2(y)), "tanh"));
  }
};

struct Head {
  LayerNorm ln_f;
  at::Tensor weight;  // [V, C]; the embedding's own tensor if tied
  Products products = Products::kOneDnn;

  at::Tensor operator()(const at::Tensor& x) const {  // [B, T, C] -> logits [B, T, V]
    return project(ln_f(x), weight, products);
  }
};

Embedding make_embedding(const ParameterMaker& make, const ModelOptions& options) {
  return {make.normal("wte.weight", {options.vocab_size, options.channels}, kInitStd),
          make.normal("wpe.weight", {options.context, options.channels}, kInitStd)};
}

Layer embedding_layer(const Embedding& embedding) {
  return {{"embedding", {{"wte.weight", embedding.wte}, {"wpe.weight", embedding.wpe}}}, embedding};
}

Layer block_layer(const ParameterMaker& make, const ModelOptions& options, std::int64_t index) {
  const std::int64_t C = options.channels;
  const std::string h = concat("h.", index, ".");
  const double residual_std = kInitStd / std::sqrt(2.0 * static_cast<double>(options.layers));
  const Block block{
      .ln_1 = make.layer_norm(C),
      .attn = {make.linear(h + "attn.c_attn", C, 3 * C, kInitStd),
               make.linear(h + "attn.c_proj", C, C, residual_std), options.heads},
      .ln_2 = make.layer_norm(C),
      .c_fc = make.linear(h + "mlp.c_fc", C, 4 * C, kInitStd),
      .c_proj = make.linear(h + "mlp.c_proj", 4 * C, C, residual_std),
  };
  return {{concat("block", index),
           {{h + "ln_1.weight", block.ln_1.weight},
            {h + "ln_1.bias", block.ln_1.bias},
            {h + "attn.c_attn.weight", block.attn.c_attn.weight},
            {h + "attn.c_attn.bias", block.attn.c_attn.bias},
            {h + "attn.c_proj.weight", block.attn.c_proj.weight},
            {h + "attn.c_proj.bias", block.attn.c_proj.bias},
            {h + "ln_2.weight", block.ln_2.weight},
            {h + "ln_2.bias", block.ln_2.bias},
            {h + "mlp.c_fc.weight", block.c_fc.weight},
            {h + "mlp.c_fc.bias", block.c_fc.bias},
            {h + "mlp.c_proj.weight", block.c_proj.weight},
            {h + "mlp.c_proj.bias", block.c_proj.bias}}},
          block};
}

// `wte` is the token embedding, undefined if this part of the model does not include it.
Layer head_layer(const ParameterMaker& make, const ModelOptions& options, const at::Tensor& wte) {
  const std::vector<std::int64_t> shape = {options.vocab_size, options.channels};
  const bool is_shared = options.tie_embeddings && wte.defined();
  const std::string name = options.tie_embeddings ? "wte.weight" : "lm_head.weight";
  const Head head{make.layer_norm(options.channels),
                  is_shared ? wte : make.normal(name, shape, kInitStd), options.products};
  Layer layer{{"head", {{"ln_f.weight", head.ln_f.weight}, {"ln_f.bias", head.ln_f.bias}}}, head};
  if (is_shared) {
    layer.reads = 0;
  } else {
    layer.unit.tensors.push_back({name, head.weight});
  }
  return layer;
}

}  // namespace

Model build_gpt(const ModelOptions& options, std::uint64_t seed,
                const std::vector<std::int64_t>& layers, const OnUnit& on_unit, at::Device device) {
  validate(options);
  const std::int64_t head = options.layers + 1;
  check(!layers.empty(), "a part of a GPT needs at least one layer");
  std::int64_t previous = -1;
  for (const std::int64_t layer : layers) {
    check(previous < layer && layer <= head, "layer ", layer, " after layer ", previous,
          ": this GPT has the layers 0 to ", head, ", in ascending order");
    previous = layer;
  }
  const MemoryScope scope(MemoryCategory::kParameters);
  const ParameterMaker make(derive_seed(seed, "model"), device, options);
  Model model;
  Embedding embedding;
  for (const std::int64_t layer : layers) {
    if (layer == 0) {
      embedding = make_embedding(make, options);
      model.layers.push_back(embedding_layer(embedding));
    } else if (layer < head) {
      model.layers.push_back(block_layer(make, options, layer - 1));
    } else {
      model.layers.push_back(head_layer(make, options, embedding.wte));
    }
    if (on_unit) on_unit(model.layers.back().unit);
  }
  return model;
}

Model build_gpt(const ModelOptions& options, std::uint64_t seed, const OnUnit& on_unit,
                at::Device device) {
  std::vector<std::int64_t> all(static_cast<std::size_t>(options.layers + 2));
  std::iota(all.begin(), all.end(), 0);
  return build_gpt(options, seed, all, on_unit, device);
}

ModelBuilder gpt_builder(const ModelOptions& options, std::uint64_t seed) {
  return [=](const OnUnit& on_unit, at::Device device) {
    return build_gpt(options, seed, on_unit, device);
  };
}

namespace {

// What the mixing of a block saves per token (modules.cpp, mix): the fused kernel queries, keys and
// values, its output and one log-sum per head, all in fp32 if 16 bits are widened for it; the one
// that is written out the first three and all probabilities. The output's copy counts with c_proj.
std::int64_t attention_bytes(const ModelOptions& options) {
  const std::int64_t C = options.channels, H = options.heads;
  const std::int64_t e = options.precision.param_bytes();
  if (is_attention_written_out(options.precision.params)) return e * (3 * C + H * options.context);
  return options.precision.has_16_bit_params() ? 4 * (4 * C + H) : 4 * (3 * C + H);
}

}  // namespace

std::int64_t saved_activation_bytes(const ModelOptions& options, std::int64_t num_rows) {
  const std::int64_t C = options.channels;
  const std::int64_t e = options.precision.param_bytes();  // of an activation
  // Per token: a LayerNorm saves its input and two fp32 statistics; a product saves its input.
  const std::int64_t layer_norm = e * C + 2 * 4;
  const std::int64_t attention = layer_norm + e * C + attention_bytes(options) + e * C;
  const std::int64_t mlp = layer_norm + e * C + e * 4 * C + e * 4 * C;  // ln_2, c_fc, gelu, c_proj
  // The loss is computed in fp32, and log_softmax saves its output.
  const std::int64_t head = layer_norm + e * C + 4 * options.vocab_size;
  return num_rows * options.context * (options.layers * (attention + mlp) + head);
}

std::vector<std::int64_t> forward_flops(const ModelOptions& options) {
  const std::int64_t C = options.channels;
  const std::int64_t products = C * 3 * C + C * C + C * 4 * C + 4 * C * C;
  const std::int64_t attention = 2 * C * options.context;
  std::vector<std::int64_t> flops(static_cast<std::size_t>(options.layers + 2),
                                  2 * (products + attention));
  flops.front() = 0;
  flops.back() = 2 * C * options.vocab_size;
  return flops;
}

void validate(const ModelOptions& options) {
  check_usage(options.vocab_size > 0, "--vocab-size is ", options.vocab_size,
              ", it must be at least 1");
  check_usage(options.context > 0, "--context is ", options.context, ", it must be at least 1");
  check_usage(options.layers > 0, "--layers is ", options.layers, ", it must be at least 1");
  check_usage(options.heads > 0, "--heads is ", options.heads, ", it must be at least 1");
  check_usage(options.channels > 0, "--channels is ", options.channels, ", it must be at least 1");
  check_usage(options.channels % options.heads == 0, "--channels ", options.channels,
              " is not a multiple of --heads ", options.heads);
}

}  // namespace ladder
