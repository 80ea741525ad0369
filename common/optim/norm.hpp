// Norms over a flat buffer whose last bit does not depend on who holds which part of it.
//
// Squares are summed in double over blocks of 1024 elements, counted from the start of each unit,
// and the block sums are added up in the order of the blocks. A rank that owns whole blocks can
// compute their sums alone; once all block sums are gathered, every rank gets the same norm as a
// single process. Partial norms per rank would differ in the last bits from one way of sharding to
// another. With sums in double that hardly ever reaches a parameter, since clipping rounds its factor
// to fp32; but the reported norm would differ, and no test could ask for equal bits.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "common/optim/flat_model.hpp"

namespace ladder {

inline constexpr std::int64_t kNormBlock = 1024;  // elements

// Sums of squares, one per block, of pieces that each start on a block: whole units, or one rank's
// slices of them. Pieces: [n] fp32 on the CPU. A piece's last block may be shorter; missing elements
// count as zeros, to the bit.
std::vector<double> block_sums(const std::vector<at::Tensor>& pieces);

// √ of their sum, added up in this order.
double norm_of(const std::vector<double>& block_sums);

// The norm of a whole buffer of this layout, and of a model's parameters.
double flat_norm(const FlatLayout& layout, const at::Tensor& flat);
double parameter_norm(const FlatModel& model);

// The factor that brings gradients of this norm to at most clip_norm, as PyTorch computes it:
// min(1, clip_norm / (norm + 1e-6)). clip_norm 0 means off: 1.
double clip_factor(double norm, double clip_norm);

// Scales a whole model's gradients by clip_factor() in place and returns their norm before that.
double clip_gradients(FlatGradients& grads, double clip_norm);

}  // namespace ladder
