// Norms over a flat buffer that do not depend, to the last bit, on which rank holds which part.
//
// Squares are summed in double over blocks of 1024 elements, counted from the start of each unit,
// and the block sums are added in the order of the blocks. In a block, element i is added to running
// sum i mod 16, and then the sixteen are added in order. A rank that owns whole blocks can compute
// their sums alone; once all block sums are gathered, every rank gets the same norm as a single
// process. With one partial norm per rank, the last bits would depend on the sharding. Since sums
// are in double and clipping rounds its factor to fp32, this would hardly ever reach a parameter;
// but the reported norm would differ, and no test could require equal bits.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <utility>
#include <vector>

#include "common/optim/flat_model.hpp"

namespace ladder {

// Sums of squares, one per block, of pieces that each start at a block boundary: whole units, or
// one rank's slices of them. Pieces are [n], contiguous fp32, bf16 or fp16, all on the CPU or all
// on one GPU, with the same bits; others throw CheckError. A piece's last block may be shorter,
// with the same bits as if it were padded with zeros.
std::vector<double> block_sums(const std::vector<at::Tensor>& pieces);

// A norm, and what it was added up from.
struct Norm {
  Norm(double norm, std::vector<double> sums = {})  // NOLINT(*-explicit-*)
      : value(norm), block_sums(std::move(sums)) {}
  operator double() const { return value; }  // NOLINT(*-explicit-*)
  double value;
  std::vector<double> block_sums;  // of all blocks, in their order; empty: not known
};

// The square root of their sum, added in the given order.
Norm norm_of(std::vector<double> block_sums);

// The norms of a whole buffer with this layout, of a model's parameters and of its gradients.
Norm flat_norm(const FlatLayout& layout, const at::Tensor& flat);
Norm parameter_norm(const FlatModel& model);
Norm gradient_norm(const FlatGradients& grads);

// The factor that scales gradients of this norm down to at most clip_norm, as PyTorch computes it:
// min(1, clip_norm / (norm + 1e-6)). It is 1 if clip_norm is 0 (clipping is off).
double clip_factor(double norm, double clip_norm);

// What an optimizer step must know of gradients of loss_scale · loss (loss_scaler.hpp). They stay
// as they are: it is the optimizer that multiplies them by the factor, once it has widened them to
// fp32. In 16 bits, what is unscaled could vanish again.
struct Clipping {
  // The first norm is that of the whole gradient as it is, still scaled.
  Clipping(Norm of_scaled, double clip_norm, double loss_scale = 1);

  Norm scaled;
  double norm;    // the true one, before clipping; if it is not finite, neither are the gradients
  double factor;  // divides by the loss scale and clips: clip_factor() / loss_scale
};

}  // namespace ladder
