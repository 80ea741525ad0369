// Tensor parallelism: the layers of a stage are shared by several ranks, each of which has some
// parts of them (common/model/parts.hpp).
//
//   rank 0   x ─ f ─ heads 0 and 1 ─┐            ┌─ f ─ channels of the MLP ─┐
//                                   g ─ + x ─ norm                           g ─ …
//   rank 1   x ─ f ─ heads 2 and 3 ─┘            └─ f ─ the other channels ──┘
//
// A rank has its parts' columns of a product, whatever is computed with these alone, and its parts'
// rows of the next one. What that makes is a partial product: g adds it up over the ranks. Backward,
// each rank has the gradient that comes through its own parts, and f adds those up. All else (norms,
// residuals, biases of what was added up) each rank computes for itself, from equal numbers, with
// equal results: there, gradients need no sum.
//
// The tree adds up the parts, whoever has them, so the bits are those of one rank that computes all
// parts: of step 0 with the same --product-parts. They do not depend on the number of ranks.
#pragma once

#include <ATen/core/Tensor.h>

#include "common/comm/mesh.hpp"
#include "common/model/parts.hpp"
#include "common/train/options/options.hpp"
#include "step8_pipeline_ga/runner/pipeline_runner.hpp"

namespace ladder {

// The parts of the layers that this rank has: of --product-parts, as many as every other rank of its
// group, in the order of the ranks.
//
// Collective: what is computed with the result. All ranks of mesh.tensor_parallel run the same
// layers in the same order; two all-reduces of [B, T, C] in a block's forward, and two in its
// backward, for which the rank waits.
//
// Lifetime: the mesh's groups outlive the result.
Parts parts_on(const Mesh& mesh, const TrainOptions& options);

// What all tensor ranks have computed alike, as part of a sum over all ranks: it counts on the first
// of them, and is 0 on the others.
double counted_once(double value, const Mesh& mesh);

// A pipeline whose logits are whole on every rank, for generate() (common/train/generate.hpp).
class WholeLogits {
 public:
  // Lifetime: the pipeline outlives this.
  WholeLogits(PipelineRunner& pipeline, const Parts& parts, std::int64_t vocab_size)
      : pipeline_(pipeline), parts_{parts, vocab_size} {}

  // [B, T] int64 -> [B, 1, V], of the next token. Collective over the ranks of a replica.
  at::Tensor forward(const at::Tensor& tokens);

 private:
  PipelineRunner& pipeline_;
  VocabParts parts_;
};

}  // namespace ladder
