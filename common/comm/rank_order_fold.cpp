#include "common/comm/rank_order_fold.hpp"

#include <ATen/ops/add.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>

#include <algorithm>
#include <cstring>

#include "common/core/memory_ledger.hpp"

namespace ladder {
namespace {

// The fold goes block by block: a block of each piece stays in the cache while it is folded, so
// each piece is read from memory only once.
constexpr std::int64_t kBlockBytes = 256 * 1024;

// Tensors over raw memory: they share no version counter with the caller's, and need no autograd.
at::Tensor view(std::byte* data, c10::ScalarType dtype, std::int64_t numel) {
  return at::from_blob(data, {numel}, at::TensorOptions().dtype(dtype));
}

}  // namespace

void fold_in_rank_order(const std::vector<std::byte*>& pieces, int own, std::byte* target,
                        c10::ScalarType dtype, std::int64_t numel) {
  const auto item_bytes = static_cast<std::int64_t>(c10::elementSize(dtype));
  const int last = static_cast<int>(pieces.size()) - 1;
  if (numel == 0) return;
  if (last == 0) {
    std::memmove(target, pieces[0], static_cast<std::size_t>(numel * item_bytes));
    return;
  }
  // Partial sums are kept in the target, unless it holds a piece that has yet to be added; then
  // they are kept in rank 0's piece, which is scratch.
  const bool target_holds_later_piece = own >= 2 && target == pieces[own];
  std::byte* const partial = target_holds_later_piece ? pieces[0] : target;

  const std::int64_t block = kBlockBytes / item_bytes;
  for (std::int64_t begin = 0; begin < numel; begin += block) {
    const std::int64_t length = std::min(block, numel - begin);
    const auto block_of = [&](std::byte* piece) {
      return view(piece + begin * item_bytes, dtype, length);
    };
    at::Tensor sum = block_of(pieces[0]);
    for (int r = 1; r <= last; ++r) {
      at::Tensor next = block_of(r == last ? target : partial);
      at::add_out(next, sum, block_of(pieces[r]));
      sum = next;
    }
  }
}

std::byte* data_of(const at::Tensor& tensor) {
  return static_cast<std::byte*>(const_cast<void*>(tensor.const_data_ptr()));
}

RankSlices::Bytes RankSlices::slice(int rank) const {
  const ElementRange range = slice_of(tensor_.numel(), size_, rank);
  const auto item_bytes = static_cast<std::int64_t>(tensor_.element_size());
  return {data_of(tensor_) + range.begin * item_bytes,
          static_cast<std::size_t>(range.numel * item_bytes)};
}

void RankSlices::make_room() {
  const MemoryScope scope(MemoryCategory::kCommunication);
  room_ = at::empty({(size_ - 1) * own_numel()}, tensor_.options());
}

RankSlices::Bytes RankSlices::arriving(int peer) const {
  const std::size_t bytes = own().size();
  return {data_of(room_) + static_cast<std::size_t>(peer < rank_ ? peer : peer - 1) * bytes, bytes};
}

std::vector<std::byte*> RankSlices::pieces() const {
  std::vector<std::byte*> pieces;
  for (int r = 0; r < size_; ++r) pieces.push_back(r == rank_ ? own().data() : arriving(r).data());
  return pieces;
}

}  // namespace ladder
