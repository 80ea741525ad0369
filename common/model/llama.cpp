// Llama (Touvron et al., arXiv 2302.13971 and 2307.09288): pre-norm blocks with RMSNorm, rotary
// positions, grouped-query attention and a SwiGLU. There are no biases. Weights are [out, in], as in
// Hugging Face's files.
//
// Its relatives (llama_traits.cpp) have what their traits say.

#include <algorithm>
#include <optional>

#include "common/core/check.hpp"
#include "common/core/cuda_device.hpp"
#include "common/model/attention.hpp"
#include "common/model/family.hpp"
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

class Llama final : public Family {
 public:
  explicit Llama(const ModelOptions& options)
      : Family(options),
        head_channels_(options_.head_channels),
        rotary_(options.context, head_channels_, options.rope_theta,
                parse_rope_scaling(options.rope_scaling)) {
    const std::string cause =
        options.head_channels != 0
            ? concat("--head-channels ", options.head_channels)
            : concat("--channels ", options.channels, " and --heads ", options.heads);
    check_usage(head_channels_ % 2 == 0, cause, " make heads of ", head_channels_,
                " channels; rotary positions turn pairs of them, so their number must be even");
  }

  Embedding embedding(const ParameterMaker& make, const Parts& parts) const override {
    Layer layer;
    const TokenEmbedding tokens = token_embedding(make, layer.unit, parts);
    layer.forward = [tokens](const at::Tensor& ids) {
      return tokens(to_device(ids, tokens.weights[0].device()));
    };
    return {layer, tokens.weights};
  }

  Layer block(const ParameterMaker& make, std::int64_t index, const Parts& parts) const override {
    const std::int64_t C = options_.channels, M = options_.mlp_channels, d = head_channels_;
    const std::int64_t A = options_.heads * d, kv_channels = options_.kv_heads * d;
    const std::string of_layer = concat("layers.", index, ".");
    const double residual = residual_std(options_);
    Layer layer;
    // Weights are [out, in]: a part has rows of what its channels come from, and columns of what
    // becomes of them.
    const auto from = [&](const char* name, std::int64_t n, std::int64_t grain) {
      return make.normal(layer.unit, of_layer + name + ".weight", {n, C}, cut_rows(n, C, grain),
                         parts);
    };
    const auto heads_from = [&](const char* name, std::int64_t n) {
      std::vector<Projection> projections;
      for (const at::Tensor& weight : from(name, n, d)) projections.push_back({weight, {}});
      if (!traits().has_qkv_bias()) return projections;
      const auto biases =
          make.constant(layer.unit, of_layer + name + ".bias", n, cut_columns(1, n, d), parts, 0);
      for (std::size_t part = 0; part < biases.size(); ++part)
        projections[part].bias = biases[part];
      return projections;
    };
    const auto into = [&](const char* name, std::int64_t n, std::int64_t grain) {
      return make.normal(layer.unit, of_layer + name + ".weight", {C, n}, cut_columns(C, n, grain),
                         parts, residual);
    };
    const bool is_after = traits().has_norms_after();
    const auto own_norm = [&](const char* if_before, const char* if_after) {
      return InRows<RmsNorm>{norm(make, layer.unit, of_layer + (is_after ? if_after : if_before)),
                             parts};
    };
    LlamaBlock block = {.attention_norm = own_norm("input_layernorm", "post_attention_layernorm"),
                        .attention = {{}, {}, parts},
                        .norms = {},
                        .mlp_norm = {},
                        .mlp = {{}, {}, parts},
                        .has_norms_after = is_after};
    const auto q = heads_from("self_attn.q_proj", A),
               k = heads_from("self_attn.k_proj", kv_channels);
    const auto v = heads_from("self_attn.v_proj", kv_channels);
    const auto o = into("self_attn.o_proj", A, d);
    const bool is_of_all = traits().qk_norm() == QkNorm::kOfAllHeads;
    if (traits().qk_norm() != QkNorm::kNone)
      block.norms = SharedNorms{
          norm(make, layer.unit, of_layer + "self_attn.q_norm", is_of_all ? A : d),
          norm(make, layer.unit, of_layer + "self_attn.k_norm", is_of_all ? kv_channels : d)};
    block.mlp_norm = own_norm("post_attention_layernorm", "post_feedforward_layernorm");
    const auto gate = from("mlp.gate_proj", M, 1), up = from("mlp.up_proj", M, 1);
    const auto down = into("mlp.down_proj", M, 1);
    const std::int64_t interval = options_.no_rope_interval;
    const bool has_positions = interval == 0 || (index + 1) % interval != 0;
    const auto rotary = has_positions ? std::optional(rotary_) : std::nullopt;
    for (std::size_t part = 0; part < q.size(); ++part) {
      block.attention.own.push_back(
          {q[part], k[part], v[part], o[part], rotary, d, options_.products});
      block.mlp.own.push_back({gate[part], up[part], down[part], options_.products});
    }
    layer.forward = block;
    return layer;
  }

  Layer final_norm(const ParameterMaker& make, const Parts& parts) const override {
    Layer layer;
    layer.forward = InRows<RmsNorm>{norm(make, layer.unit, "norm"), parts};
    return layer;
  }

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
  RmsNorm norm(const ParameterMaker& make, Unit& unit, const std::string& name) const {
    return norm(make, unit, name, options_.channels);
  }
  RmsNorm norm(const ParameterMaker& make, Unit& unit, const std::string& name,
               std::int64_t channels) const {
    return {make.constant(unit, name + ".weight", channels, 1.0), options_.norm_eps};
  }

  std::int64_t head_channels_;
  RotaryPositions rotary_;
};

}  // namespace

std::unique_ptr<Family> make_llama(const ModelOptions& options) {
  return std::make_unique<Llama>(options);
}

}  // namespace ladder
