// Norms over a flat buffer that do not depend, to the last bit, on which rank holds which part.
//
// Squares are summed in double over blocks of 1024 elements, counted from the start of each unit,
// and the block sums are added in the order of the blocks. A rank that owns whole blocks can
// compute their sums alone; once all block sums are gathered, every rank gets the same norm as a
// single process. With one partial norm per rank, the last bits would depend on the sharding. Since
// sums are in double and clipping rounds its factor to fp32, this would hardly ever reach a
// parameter; but the reported norm would differ, and no test could require equal bits.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "common/optim/flat_model.hpp"

namespace ladder {

inline constexpr std::int64_t kNormBlock = 1024;  // elements

// Sums of squares, one per block, of pieces that each start at a block boundary: whole units, or
// one rank's slices of them. Pieces are [n], contiguous fp32, bf16 or fp16, all on the CPU or all on one GPU, with the same bits; others throw
// CheckError. A piece's last block may be shorter, with the same bits as if it were padded with
// zeros.
std::vector<double> block_sums(const std::vector<at::Tensor>& pieces);

// The square root of their sum, added in the given order.
double norm_of(const std::vector<double>& block_sums);

// The norms of a whole buffer with this layout and of a model's parameters.
double flat_norm(const FlatLayout& layout, const at::Tensor& flat);
double parameter_norm(const FlatModel& model);

// The factor that scales gradients of this norm down to at most clip_norm, as PyTorch computes it:
// min(1, clip_norm / (norm + 1e-6)). It is 1 if clip_norm is 0 (clipping is off).
double clip_factor(double norm, double clip_norm);

// For gradients of loss_scale · loss (loss_scaler.hpp): divides a whole model's gradients by the loss
// scale, scales them by clip_factor(), both in one pass and in place, and returns their true norm
// before clipping. If it is infinite or not a number, they are not worth anything.
double clip_gradients(FlatGradients& grads, double clip_norm, double loss_scale = 1);

}  // namespace ladder
