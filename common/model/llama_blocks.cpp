// The layers of Llama and its relatives (llama.cpp).

#include <algorithm>
#include <optional>

#include "common/core/check.hpp"
#include "common/core/cuda_device.hpp"
#include "common/model/attention.hpp"
#include "common/model/family_layers.hpp"
#include "common/model/llama_layers.hpp"

namespace ladder {
namespace {

struct Projection {
  at::Tensor weight;  // [out, in]
  at::Tensor bias;    // [out], or undefined if there is none
};

// Some heads, or all. A is as many channels as they have; of keys and values, as many heads as go
// with them.
struct LlamaAttention {
  Projection q_proj;  // [A, C]
  Projection k_proj;  // [A·K/H, C]
  Projection v_proj;  // [A·K/H, C]
  at::Tensor o_proj;  // [C, A]
  std::optional<RotaryPositions> rotary;
  std::int64_t head_channels;  // d
  Products products;
  std::optional<RmsNorm> q_norm = {}, k_norm = {};  // [d], over each head, or [A] and [A·K/H]

  at::Tensor operator()(const at::Tensor& x) const {
    // [B, T, C] -> [B, T, H or K, d]
    const auto heads = [&](const Projection& from, const std::optional<RmsNorm>& norm) {
      const auto in_pieces = [&](const at::Tensor& y, std::int64_t width) {
        return y.view({x.size(0), x.size(1), -1, width});
      };
      at::Tensor y = project(x, from.weight, from.bias, products);
      if (norm) y = (*norm)(in_pieces(y, norm->weight.numel()));
      return in_pieces(y, head_channels);
    };
    const at::Tensor q = heads(q_proj, q_norm), k = heads(k_proj, k_norm);
    const auto turned = [&](const at::Tensor& y) { return rotary ? (*rotary)(y) : y; };
    return project(causal_attention(turned(q), turned(k), heads(v_proj, {})), o_proj, products);
  }
};

// Norms of queries and keys that the heads of all parts share. So each part has a branch of their
// weights, whose gradients are added up over parts by the tree, and among owners.
struct SharedNorms {
  RmsNorm q_norm, k_norm;

  InParts<LlamaAttention> in(InParts<LlamaAttention> attention) const {
    for (const auto& [norm, member] :
         {std::pair(q_norm, &LlamaAttention::q_norm), std::pair(k_norm, &LlamaAttention::k_norm)}) {
      const auto take = [&](int part, const at::Tensor& branch) {
        attention.own[static_cast<std::size_t>(part)].*member = norm.with({branch});
        return part;
      };
      over_parts(0, attention.parts.own, branch_to_owners(norm.weight, attention.parts), take,
                 [](int, int last) { return last; });
    }
    return attention;
  }
};

struct LlamaMlp {
  at::Tensor gate_proj;  // [M, C], or some of these channels
  at::Tensor up_proj;    // [M, C]
  at::Tensor down_proj;  // [C, M]
  Products products;

  at::Tensor operator()(const at::Tensor& x) const {
    const at::Tensor gate = project(x, gate_proj, products);
    return project(swiglu(gate, project(x, up_proj, products)), down_proj, products);
  }
};

struct LlamaBlock {
  InRows<RmsNorm> attention_norm;
  InParts<LlamaAttention> attention;
  std::optional<SharedNorms> norms;
  InRows<RmsNorm> mlp_norm;
  InParts<LlamaMlp> mlp;
  bool has_norms_after;

  at::Tensor operator()(const at::Tensor& x) const {  // [B, T, C] -> [B, T, C]
    const auto attend = [&](const at::Tensor& from) {
      return norms ? norms->in(attention)(from) : attention(from);
    };
    const at::Tensor y =
        x + (has_norms_after ? attention_norm(attend(x)) : attend(attention_norm(x)));
    return y + (has_norms_after ? mlp_norm(mlp(y)) : mlp(mlp_norm(y)));
  }
};

class LlamaLayers final : public FamilyLayers {
 public:
  explicit LlamaLayers(const Family& family)
      : FamilyLayers(family),
        rotary_(options_.context, options_.head_channels, options_.rope_theta,
                parse_rope_scaling(options_.rope_scaling)) {}

  Forward embedding(const LayerTensors& tensors) const override {
    return [tokens = token_embedding(family_, tensors)](const at::Tensor& ids) {
      return tokens(to_device(ids, tokens.weights[0].device()));
    };
  }

  Forward block(const LayerTensors& tensors, std::int64_t index) const override {
    const FamilyTraits& traits = family_.traits();
    const std::string of_layer = concat("layers.", index, ".");
    const Parts& parts = tensors.parts();
    const auto own = [&](const std::string& name) -> const std::vector<at::Tensor>& {
      return tensors.own(of_layer + name);
    };
    const auto heads_from = [&](const std::string& name) {
      std::vector<Projection> projections;
      for (const at::Tensor& weight : own(name + ".weight")) projections.push_back({weight, {}});
      for (std::size_t part = 0; traits.has_qkv_bias() && part < projections.size(); ++part)
        projections[part].bias = own(name + ".bias")[part];
      return projections;
    };
    const bool is_after = traits.has_norms_after();
    const auto own_norm = [&](const char* if_before, const char* if_after) {
      return InRows<RmsNorm>{norm(tensors, of_layer + (is_after ? if_after : if_before)), parts};
    };
    LlamaBlock block = {
        .attention_norm = own_norm("input_layernorm", "post_attention_layernorm"),
        .attention = {{}, {}, parts},
        .norms = {},
        .mlp_norm = own_norm("post_attention_layernorm", "post_feedforward_layernorm"),
        .mlp = {{}, {}, parts},
        .has_norms_after = is_after};
    if (traits.qk_norm() != QkNorm::kNone)
      block.norms = SharedNorms{norm(tensors, of_layer + "self_attn.q_norm"),
                                norm(tensors, of_layer + "self_attn.k_norm")};
    const auto q = heads_from("self_attn.q_proj"), k = heads_from("self_attn.k_proj"),
               v = heads_from("self_attn.v_proj");
    const auto &o = own("self_attn.o_proj.weight"), &gate = own("mlp.gate_proj.weight"),
               &up = own("mlp.up_proj.weight"), &down = own("mlp.down_proj.weight");
    const std::int64_t interval = options_.no_rope_interval;
    const bool has_positions = interval == 0 || (index + 1) % interval != 0;
    const auto rotary = has_positions ? std::optional(rotary_) : std::nullopt;
    for (std::size_t part = 0; part < q.size(); ++part) {
      block.attention.own.push_back(
          {q[part], k[part], v[part], o[part], rotary, options_.head_channels, options_.products});
      block.mlp.own.push_back({gate[part], up[part], down[part], options_.products});
    }
    return block;
  }

  Forward final_norm(const LayerTensors& tensors) const override {
    return InRows<RmsNorm>{norm(tensors, "norm"), tensors.parts()};
  }

 private:
  RmsNorm norm(const LayerTensors& tensors, const std::string& name) const {
    return {tensors.whole(name + ".weight"), options_.norm_eps};
  }

  RotaryPositions rotary_;
};

}  // namespace

std::unique_ptr<FamilyLayers> llama_layers(const Family& family) {
  return std::make_unique<LlamaLayers>(family);
}

}  // namespace ladder
