#include "common/comm/tree_fold.hpp"

#include <ATen/ops/add.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>

#include <algorithm>
#include <cstring>

#include "common/core/memory_ledger.hpp"
#include "common/core/tree_sum.hpp"

namespace ladder {
namespace {

// The fold goes block by block: a block of each piece stays in the cache while it is folded, so
// each piece is read from memory only once.
constexpr std::int64_t kBlockBytes = 512 * 1024;

// Tensors over raw memory: they share no version counter with the caller's, and need no autograd.
at::Tensor view(std::byte* data, c10::ScalarType dtype, std::int64_t numel) {
  return at::from_blob(data, {numel}, at::TensorOptions().dtype(dtype));
}

}  // namespace

void tree_fold(const std::vector<std::byte*>& pieces, int own, std::byte* target,
               c10::ScalarType dtype, std::int64_t numel) {
  const auto item_bytes = static_cast<std::int64_t>(c10::elementSize(dtype));
  const int num_pieces = static_cast<int>(pieces.size());
  if (numel == 0) return;
  if (num_pieces == 1) {
    std::memmove(target, pieces[0], static_cast<std::size_t>(numel * item_bytes));
    return;
  }
  struct Sum {  // of some pieces
    int begin, end;
    at::Tensor values;
  };
  const std::int64_t block = kBlockBytes / item_bytes;
  for (std::int64_t begin = 0; begin < numel; begin += block) {
    const std::int64_t length = std::min(block, numel - begin);
    const auto block_of = [&](std::byte* data) {
      return view(data + begin * item_bytes, dtype, length);
    };
    const auto piece = [&](int r) { return Sum{r, r + 1, block_of(pieces[r])}; };
    const auto add = [&](const Sum& left, const Sum& right) {
      Sum sum{left.begin, right.end, {}};
      // In the target, as soon as it holds no piece that is still to be added; or in place.
      const bool is_free = target != pieces[own] || own < sum.end;
      const int scratch = left.begin == own ? left.begin + 1 : left.begin;
      sum.values = block_of(left.begin == 0 && is_free ? target : pieces[scratch]);
      at::add_out(sum.values, left.values, right.values);
      return sum;
    };
    tree_sum(0, num_pieces, piece, add);
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
