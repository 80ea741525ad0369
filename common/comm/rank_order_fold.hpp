// The only sum over ranks in the repository: ((x0 + x1) + x2) + …, elementwise in rank order.
//
// Floating-point addition is not associative, so "the sum over ranks" depends on the order. This
// order starts with rank 0's value itself (not with zero) and depends neither on which rank adds
// nor on how the elements are cut into slices, so the bits are the same everywhere.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "common/comm/slice.hpp"

namespace ladder {

// Computes target[i] = ((x0[i] + x1[i]) + x2[i]) + … where x_r = pieces[r]; each piece has `numel`
// elements of `dtype`.
//
// The target may be pieces[own]; otherwise `own` does not matter. No other piece is written, except
// pieces[0] if the target is pieces[own] and own ≥ 2: then pieces[0] is scratch. Elements need no
// alignment beyond their own size.
void fold_in_rank_order(const std::vector<std::byte*>& pieces, int own, std::byte* target,
                        c10::ScalarType dtype, std::int64_t numel);

// Reads the address by the const accessor, because most tensors of an operation are only read.
std::byte* data_of(const at::Tensor& tensor);

// A tensor in one slice for each rank, of which this rank is to add up its own: what every
// transport between processes does.
class RankSlices {
 public:
  using Bytes = std::span<std::byte>;
  RankSlices(at::Tensor tensor, int rank, int size)
      : tensor_(std::move(tensor)), rank_(rank), size_(size) {}

  int rank() const { return rank_; }
  int size() const { return size_; }
  at::ScalarType dtype() const { return tensor_.scalar_type(); }
  Bytes slice(int rank) const;
  Bytes own() const { return slice(rank_); }
  std::int64_t own_numel() const { return slice_of(tensor_.numel(), size_, rank_).numel; }

  // Room, next to the tensor, for the other ranks' pieces of this rank's slice: (size − 1) times
  // its bytes, category communication.
  void make_room();
  void drop_room() { room_.reset(); }
  const at::Tensor& room() const { return room_; }
  Bytes arriving(int peer) const;
  std::vector<std::byte*> pieces()
      const;  // of this rank's slice, in rank order: its own, and those

 private:
  at::Tensor tensor_, room_;
  int rank_, size_;
};

}  // namespace ladder
