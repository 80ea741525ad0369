// For the judge, part 2: a small model in chunks, microbatches of unequal shapes, and the
// gradients that each microbatch adds, computed in one process.
//
//   chunk c   [embedding, if c = 0]  →  y = tanh(sin(x) W_c + b_c), z = y · gain
//             →  [head and loss, if c is last]
//
// The wgrad of a linear layer needs the layer's input; thanks to the sine, that is not the
// chunk's input x, which only a dgrad needs.
//
// A stage that has several chunks has one gain for all of them; a single stage has one table for
// embedding and head. So what several chunks, or layers, read gets the sum of their gradients.
#pragma once

#include <ATen/core/grad_mode.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/embedding.h>
#include <ATen/ops/ones.h>

#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "common/core/check.hpp"
#include "common/core/unit.hpp"
#include "common/model/model.hpp"
#include "common/model/modules.hpp"
#include "step0_single_gpu/objective.hpp"

namespace ladder::step8 {

using Pass = std::pair<int, std::int64_t>;  // a chunk and a microbatch

class JudgedPipeline {
 public:
  static constexpr std::int64_t kChannels = 6;
  static constexpr std::int64_t kVocab = 7;

  // Called in the forward of each chunk: when it begins, and with what it has computed when it
  // ends.
  std::function<void(int chunk)> on_begin;
  std::function<void(const at::Tensor& x, const at::Tensor& y, const at::Tensor& z)> on_end;

  // 16-bit parameters have fp32 gradients, as in training.
  JudgedPipeline(int num_stages, int num_chunks, at::ScalarType type = at::kFloat)
      : num_stages_(num_stages), type_(type) {
    for (int c = 0; c < num_chunks; ++c) chunks_.push_back(make_chunk(c, num_chunks));
  }
  JudgedPipeline(const JudgedPipeline&) = delete;
  JudgedPipeline& operator=(const JudgedPipeline&) = delete;

  std::vector<Model> chunks_of(int stage) const {
    std::vector<Model> own;
    for (int c = stage; c < num_chunks(); c += num_stages_)
      own.push_back(chunks_[static_cast<std::size_t>(c)]);
    return own;
  }
  std::vector<NamedTensor> leaves_of(int stage) const {
    std::vector<NamedTensor> leaves;
    for (const Model& chunk : chunks_of(stage))
      for (const NamedTensor& leaf : chunk.leaves()) leaves.push_back(leaf);
    return leaves;
  }
  int num_chunks() const { return static_cast<int>(chunks_.size()); }
  int num_stages() const { return num_stages_; }

  // Weights and biases of linear layers: what separate wgrads compute.
  static bool is_of_linear_layer(const std::string& name) {
    return name.ends_with(".weight") || name.ends_with(".bias");
  }

  // Microbatch j of any batch.
  static Microbatch microbatch(std::int64_t j, bool is_unequal) {
    const std::int64_t rows = is_unequal ? 1 + (j * 2) % 3 : 2, tokens = is_unequal ? 3 + j % 2 : 4;
    const at::Tensor ids =
        (at::arange(rows * tokens).mul(3).add(j)).remainder(kVocab).view({rows, tokens});
    const at::Tensor targets = ids.roll(-1, 1);
    targets.select(1, -1).fill_(kIgnoredTarget);
    return {ids, targets, rows * (tokens - 1)};
  }

  // Computes no gradients.
  at::Tensor logits(const at::Tensor& tokens) const {
    const at::NoGradGuard no_grad;
    at::Tensor x = tokens;
    for (const Model& chunk : chunks_) x = chunk.forward(x);
    return x;
  }

  struct Gradients {
    // What a backward of a chunk adds.
    std::map<Pass, std::map<std::string, at::Tensor>> of_leaves;
    std::map<Pass, at::Tensor> of_inputs;  // what it sends to the chunk before
    double loss = 0;
  };
  // The gradients of this batch's loss, one microbatch and one chunk after the other.
  Gradients gradients(const Microbatches& batch, double num_targets) const {
    Gradients all;
    for (std::int64_t j = 0; j < batch.size(); ++j) {
      std::vector<at::Tensor> inputs, outputs;
      at::Tensor x = batch[j].tokens;
      for (const Model& chunk : chunks_) {
        if (!inputs.empty()) x.requires_grad_(true);
        inputs.push_back(x);
        outputs.push_back(chunk.forward(x));
        x = outputs.back().detach();
      }
      outputs.back() = kNextToken.loss_sum(outputs.back(), batch[j]) / num_targets;
      all.loss += outputs.back().item<double>();
      at::Tensor gradient = at::ones({});
      for (int c = num_chunks() - 1; c >= 0; --c) {
        const auto at = static_cast<std::size_t>(c);
        outputs[at].backward(gradient);
        for (const NamedTensor& leaf : leaves_of(c % num_stages_)) {
          if (leaf.tensor.grad().defined()) all.of_leaves[{c, j}][leaf.name] = leaf.tensor.grad();
          leaf.tensor.mutable_grad().reset();
        }
        gradient = inputs[at].grad();
        all.of_inputs[{c, j}] = gradient;
      }
    }
    return all;
  }

 private:
  at::Tensor leaf(at::IntArrayRef shape, int seed) const {
    at::Tensor values = at::arange(c10::multiply_integers(shape), at::kFloat)
                            .mul(1.7 + seed)
                            .sin()
                            .mul(0.7)
                            .view(shape)
                            .to(type_)
                            .set_requires_grad(true);
    if (type_ != at::kFloat) values.set_grad_dtype(at::kFloat);
    return values;
  }
  Model make_chunk(int c, int num_chunks) {
    constexpr std::int64_t C = kChannels;
    Model chunk;
    if (c == 0) {
      table_ = leaf({kVocab, C}, 0);
      chunk.layers.push_back(
          {{"embedding", {{"embedding.table", table_}}},
           [table = table_](const at::Tensor& ids) { return at::embedding(table, ids); }});
    }
    const std::string name = concat("chunk", c);
    const Linear linear = {leaf({C, C}, 3 * c + 1), leaf({C}, 3 * c + 2)};
    Unit unit = {name, {{name + ".weight", linear.weight}, {name + ".bias", linear.bias}}};
    if (c < num_stages_) {
      gains_.push_back(leaf({C}, 3 * c + 3));
      unit.tensors.push_back({name + ".gain", gains_.back()});
    }
    const at::Tensor gain = gains_[static_cast<std::size_t>(c % num_stages_)];
    chunk.layers.push_back({unit, [this, c, linear, gain](const at::Tensor& x) {
                              if (on_begin) on_begin(c);
                              const at::Tensor y = linear(x.sin()).tanh(), z = y * gain;
                              if (on_end) on_end(x, y, z);
                              return z;
                            }});
    if (c + 1 == num_chunks) {
      const bool is_tied = num_stages_ == 1;
      const at::Tensor weight = is_tied ? table_ : leaf({kVocab, C}, 3 * c + 4);
      Layer head = {{"head", {}}, [weight](const at::Tensor& x) { return project(x, weight); }};
      if (is_tied) {
        head.reads = 0;
      } else {
        head.unit.tensors = {{"head.weight", weight}};
      }
      chunk.layers.push_back(head);
    }
    return chunk;
  }

  int num_stages_;
  at::ScalarType type_;
  at::Tensor table_;
  std::vector<at::Tensor> gains_;  // of each stage
  std::vector<Model> chunks_;
};

}  // namespace ladder::step8
