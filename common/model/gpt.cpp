#include "common/model/gpt.hpp"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/ops/cross_entropy_loss.h>
#include <ATen/ops/embedding.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/gelu.h>

#include <cmath>

#include "common/core/check.hpp"
#include "common/core/memory_ledger.hpp"
#include "common/core/seed.hpp"

namespace ladder {
namespace {

constexpr double kInitStd = 0.02;

// Makes the parameters of one model, each from a random stream of its own.
class ParameterMaker {
 public:
  ParameterMaker(std::uint64_t seed, at::Device device, Products products)
      : seed_(seed), device_(device), products_(products) {}

  at::Tensor normal(const std::string& name, at::IntArrayRef shape, double std) const {
    at::Tensor tensor = empty(shape);
    if (!tensor.is_meta()) {
      tensor.normal_(0.0, std, at::make_generator<at::CPUGeneratorImpl>(derive_seed(seed_, name)));
    }
    return tensor.set_requires_grad(true);
  }

  at::Tensor constant(std::int64_t numel, double value) const {
    return empty({numel}).fill_(value).set_requires_grad(true);
  }

  LayerNorm layer_norm(std::int64_t channels) const {
    return {constant(channels, 1.0), constant(channels, 0.0)};
  }

  Linear linear(const std::string& name, std::int64_t in, std::int64_t out, double std) const {
    return {normal(name + ".weight", {in, out}, std), constant(out, 0.0), products_};
  }

 private:
  at::Tensor empty(at::IntArrayRef shape) const {
    return at::empty(shape, at::TensorOptions().dtype(at::kFloat).device(device_));
  }

  std::uint64_t seed_;
  at::Device device_;
  Products products_;
};

std::string block_prefix(std::int64_t index) {
  return concat("h.", index, ".");
}

Block make_block(const ParameterMaker& make, const GptOptions& options, std::int64_t index) {
  const std::int64_t C = options.channels;
  const std::string prefix = block_prefix(index);
  const double residual_std = kInitStd / std::sqrt(2.0 * static_cast<double>(options.layers));
  Block block;
  block.index = index;
  block.ln_1 = make.layer_norm(C);
  block.attn = {make.linear(prefix + "attn.c_attn", C, 3 * C, kInitStd),
                make.linear(prefix + "attn.c_proj", C, C, residual_std), options.heads};
  block.ln_2 = make.layer_norm(C);
  block.c_fc = make.linear(prefix + "mlp.c_fc", C, 4 * C, kInitStd);
  block.c_proj = make.linear(prefix + "mlp.c_proj", 4 * C, C, residual_std);
  return block;
}

}  // namespace

at::Tensor Embedding::operator()(const at::Tensor& tokens) const {
  return at::embedding(wte, tokens) + wpe.slice(/*dim=*/0, 0, tokens.size(1));
}

Unit Embedding::unit() const {
  return {"embedding", {{"wte.weight", wte}, {"wpe.weight", wpe}}};
}

at::Tensor Block::operator()(const at::Tensor& x) const {
  const at::Tensor y = x + attn(ln_1(x));
  return y + c_proj(at::gelu(c_fc(ln_2(y)), "tanh"));
}

Unit Block::unit() const {
  const std::string prefix = block_prefix(index);
  return {concat("block", index),
          {{prefix + "ln_1.weight", ln_1.weight},
           {prefix + "ln_1.bias", ln_1.bias},
           {prefix + "attn.c_attn.weight", attn.c_attn.weight},
           {prefix + "attn.c_attn.bias", attn.c_attn.bias},
           {prefix + "attn.c_proj.weight", attn.c_proj.weight},
           {prefix + "attn.c_proj.bias", attn.c_proj.bias},
           {prefix + "ln_2.weight", ln_2.weight},
           {prefix + "ln_2.bias", ln_2.bias},
           {prefix + "mlp.c_fc.weight", c_fc.weight},
           {prefix + "mlp.c_fc.bias", c_fc.bias},
           {prefix + "mlp.c_proj.weight", c_proj.weight},
           {prefix + "mlp.c_proj.bias", c_proj.bias}}};
}

at::Tensor Head::operator()(const at::Tensor& x) const {
  return project(ln_f(x), weight, products);
}

Unit Head::unit() const {
  Unit unit{"head", {{"ln_f.weight", ln_f.weight}, {"ln_f.bias", ln_f.bias}}};
  if (!is_tied) unit.tensors.push_back({"lm_head.weight", weight});
  return unit;
}

Gpt::Gpt(const GptOptions& options, std::uint64_t seed, const OnUnit& on_unit, at::Device device)
    : options_(options) {
  validate(options);
  const auto made = [&](const Unit& unit) {
    if (on_unit) on_unit(unit);
  };
  const MemoryScope scope(MemoryCategory::kParameters);
  const ParameterMaker make(derive_seed(seed, "model"), device, options.products);
  const std::int64_t C = options.channels;
  embedding_.wte = make.normal("wte.weight", {options.vocab_size, C}, kInitStd);
  embedding_.wpe = make.normal("wpe.weight", {options.context, C}, kInitStd);
  made(embedding_.unit());
  for (std::int64_t i = 0; i < options.layers; ++i) {
    blocks_.push_back(make_block(make, options, i));
    made(blocks_.back().unit());
  }
  head_.ln_f = make.layer_norm(C);
  head_.is_tied = options.tie_embeddings;
  head_.products = options.products;
  head_.weight = options.tie_embeddings
                     ? embedding_.wte
                     : make.normal("lm_head.weight", {options.vocab_size, C}, kInitStd);
  made(head_.unit());
}

at::Tensor Gpt::forward(const at::Tensor& tokens) const {
  at::Tensor x = embedding_(tokens);
  for (const Block& block : blocks_) x = block(x);
  return head_(x);
}

at::Tensor Gpt::loss_sum(const at::Tensor& tokens, const at::Tensor& targets) const {
  return cross_entropy_sum(forward(tokens), targets);
}

std::vector<Unit> Gpt::units() const {
  std::vector<Unit> units = {embedding_.unit()};
  for (const Block& block : blocks_) units.push_back(block.unit());
  units.push_back(head_.unit());
  return units;
}

at::Tensor cross_entropy_sum(const at::Tensor& logits, const at::Tensor& targets) {
  return at::cross_entropy_loss(logits.flatten(0, -2), targets.flatten(), /*weight=*/{},
                                at::Reduction::Sum);
}

std::int64_t count_parameters(const std::vector<Unit>& units) {
  std::int64_t count = 0;
  for (const Unit& unit : units) {
    for (const NamedTensor& named : unit.tensors) count += named.tensor.numel();
  }
  return count;
}

std::int64_t saved_activation_bytes(const GptOptions& options, std::int64_t num_rows) {
  const std::int64_t C = options.channels;
  // For each token. A LayerNorm saves its input and two statistics, a product its input; attention
  // saves queries, keys, values, its output, and of each head the logarithm of a sum.
  const std::int64_t attention =
      (C + 2) + C + 3 * C + C + options.heads;                 // ln_1, c_attn, mix, c_proj
  const std::int64_t mlp = (C + 2) + C + 4 * C + 4 * C;        // ln_2, c_fc, gelu, c_proj
  const std::int64_t head = (C + 2) + C + options.vocab_size;  // ln_f, product, log_softmax
  const std::int64_t per_token = options.layers * (attention + mlp) + head;
  return 4 * num_rows * options.context * per_token;
}

void validate(const GptOptions& options) {
  check_usage(options.vocab_size > 0, "--vocab-size is ", options.vocab_size,
              ", it must be at least 1");
  check_usage(options.context > 0, "--context is ", options.context, ", it must be at least 1");
  check_usage(options.layers > 0, "--layers is ", options.layers, ", it must be at least 1");
  check_usage(options.heads > 0, "--heads is ", options.heads, ", it must be at least 1");
  check_usage(options.channels > 0, "--channels is ", options.channels, ", it must be at least 1");
  check_usage(options.channels % options.heads == 0, "--channels ", options.channels,
              " does not divide into --heads ", options.heads, "; choose a multiple of the heads");
}

}  // namespace ladder
