// The layers of GPT-2 (gpt2.cpp).

#include <ATen/ops/arange.h>

#include "common/core/check.hpp"
#include "common/core/cuda_device.hpp"
#include "common/model/attention.hpp"
#include "common/model/family_layers.hpp"

namespace ladder {
namespace {

struct Gpt2Embedding {
  TokenEmbedding wte;
  at::Tensor wpe;  // [context, C] of positions

  at::Tensor operator()(const at::Tensor& tokens) const {  // [B, T] int64 -> [B, T, C]
    const at::Tensor x = wte(to_device(tokens, wpe.device()));
    const std::int64_t T = tokens.size(1);
    if (wte.parts.total == 1) return x + wpe.slice(/*dim=*/0, 0, T);
    const auto add = [T](const at::Tensor& rows, const auto& weights, std::int64_t first) {
      const at::Tensor positions =
          at::arange(first, first + rows.size(0), rows.options().dtype(at::kLong)).remainder(T);
      return rows + look_up(weights[0], positions);
    };
    return over_rows(wte.parts, x, {wpe}, add);
  }
};

struct Mlp {
  Linear c_fc;    // [C] -> [M], 4C as a rule, or some of these channels
  Linear c_proj;  // [M] -> [C]
  GeluForm form;

  at::Tensor operator()(const at::Tensor& x) const { return c_proj(gelu(c_fc, x, form)); }
};

struct Gpt2Block {
  InRows<LayerNorm> ln_1;
  InParts<Attention> attn;
  InRows<LayerNorm> ln_2;
  InParts<Mlp> mlp;

  at::Tensor operator()(const at::Tensor& x) const {  // [B, T, C] -> [B, T, C]
    if (attn.parts.total > 1) {
      const at::Tensor y = x + attn(ln_1(x));
      return y + mlp(ln_2(y));
    }
    const auto [skip, n] = ln_1.module.fork(x);
    const auto [y, m] = ln_2.module.fork(skip, attn(n));
    return y + mlp(m);
  }
};

class Gpt2Layers final : public FamilyLayers {
 public:
  using FamilyLayers::FamilyLayers;

  Forward embedding(const LayerTensors& tensors) const override {
    return Gpt2Embedding{token_embedding(family_, tensors),
                         tensors.whole(family_.traits().positions_name())};
  }

  Forward block(const LayerTensors& tensors, std::int64_t index) const override {
    const std::string h = concat("h.", index, ".");
    const Parts& parts = tensors.parts();
    const auto columns = [&](const std::string& name) {
      const auto &weights = tensors.own(h + name + ".weight"),
                 &biases = tensors.own(h + name + ".bias");
      std::vector<Linear> linears;
      for (std::size_t part = 0; part < weights.size(); ++part)
        linears.push_back({weights[part], biases[part], options_.products});
      return linears;
    };
    const auto rows = [&](const std::string& name) {
      const at::Tensor bias = tensors.whole(h + name + ".bias"), none;
      std::vector<Linear> linears;
      for (const at::Tensor& weight : tensors.own(h + name + ".weight"))
        linears.push_back({weight, parts.total == 1 ? bias : none, options_.products});
      return std::pair(linears, parts.total == 1 ? none : bias);
    };
    const std::vector<Linear> c_attn = columns("attn.c_attn"), c_fc = columns("mlp.c_fc");
    const auto [attn_proj, attn_bias] = rows("attn.c_proj");
    const auto [mlp_proj, mlp_bias] = rows("mlp.c_proj");
    Gpt2Block block = {{norm(tensors, h + "ln_1"), parts},
                       {{}, attn_bias, parts},
                       {norm(tensors, h + "ln_2"), parts},
                       {{}, mlp_bias, parts}};
    for (std::size_t part = 0; part < c_attn.size(); ++part) {
      block.attn.own.push_back({c_attn[part], attn_proj[part], options_.head_channels});
      block.mlp.own.push_back({c_fc[part], mlp_proj[part], options_.gelu});
    }
    return block;
  }

  Forward final_norm(const LayerTensors& tensors) const override {
    return InRows<LayerNorm>{norm(tensors, "ln_f"), tensors.parts()};
  }

 private:
  LayerNorm norm(const LayerTensors& tensors, const std::string& name) const {
    return {tensors.whole(name + ".weight"), tensors.whole(name + ".bias"), options_.norm_eps};
  }
};

}  // namespace

std::unique_ptr<FamilyLayers> gpt2_layers(const Family& family) {
  return std::make_unique<Gpt2Layers>(family);
}

}  // namespace ladder
