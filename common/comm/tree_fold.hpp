// The only sum over ranks in the repository, elementwise in the order of tree_sum.hpp, and the room
// for what is added up.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "common/comm/slice.hpp"

namespace ladder {

// Computes target[i] = (x0[i] + x1[i]) + …, in the order of the tree, where x_r = pieces[r]; each
// piece has `numel` elements of `dtype`.
//
// All pieces but pieces[own] are scratch. The target may be pieces[own], which is written only then,
// or the first one that is scratch.
// Elements need no alignment beyond their own size.
void tree_fold(const std::vector<std::byte*>& pieces, int own, std::byte* target,
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
  std::int64_t numel(int rank) const { return slice_of(tensor_.numel(), size_, rank).numel; }
  std::int64_t own_numel() const { return numel(rank_); }

  // Room, next to the tensor, for the other ranks' pieces of this rank's slice: (size − 1) times
  // its bytes, category communication.
  void make_room();
  const at::Tensor& room() const { return room_; }
  Bytes arriving(int peer) const;
  std::vector<std::byte*> pieces() const;  // of this rank's slice, by rank: its own, and those

 private:
  at::Tensor tensor_, room_;
  int rank_, size_;
};

}  // namespace ladder
