#include "common/comm/threads/thread_exchange.hpp"

#include <ATen/ops/empty.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>

#include "common/comm/argument_checks.hpp"
#include "common/comm/rank_order_fold.hpp"
#include "common/core/check.hpp"
#include "common/core/memory_ledger.hpp"

namespace ladder {
namespace {

// Through the const accessor, because most of these are only read. Nothing here is behind a
// copy-on-write.
std::byte* data_of(const at::Tensor& tensor) {
  return static_cast<std::byte*>(const_cast<void*>(tensor.const_data_ptr()));
}

void transfer(const std::byte* from, std::byte* to, std::size_t bytes) {
  if (bytes > 0 && from != to) std::memcpy(to, from, bytes);
}

std::string another_length(const ThreadPart& sender, const ThreadPart& receiver) {
  if (sender.tensor.nbytes() == receiver.tensor.nbytes()) return {};
  return other_length(sender.rank, static_cast<std::int64_t>(sender.tensor.nbytes()),
                      static_cast<std::int64_t>(receiver.tensor.nbytes()));
}

std::string other_call(const ThreadPart& other, const ThreadPart& own) {
  if (std::string_view(other.call) == own.call) return {};
  return concat("rank ", other.rank, " called ", other.call,
                "; all ranks must call the same operations in the same order");
}

std::string other_root(const ThreadPart& other, const ThreadPart& own) {
  if (other.root == own.root) return {};
  return concat("the root is ", own.root, " here and ", other.root, " on rank ", other.rank);
}

std::string other_dtype(const ThreadPart& other, const ThreadPart& own) {
  if (other.tensor.scalar_type() == own.tensor.scalar_type()) return {};
  return concat("rank ", other.rank, " sent ", other.tensor.scalar_type(), " where ",
                own.tensor.scalar_type(),
                " was expected; all ranks must pass the same dtype and numel");
}

// Compares each part with all others. Unless all are equal, every part differs from some other, and
// gets an error.
bool is_equal(std::vector<ThreadPart>& parts,
              std::string (*difference)(const ThreadPart& other, const ThreadPart& own)) {
  bool all_equal = true;
  for (ThreadPart& own : parts) {
    for (const ThreadPart& other : parts) {
      if (own.error.empty()) own.error = difference(other, own);
    }
    all_equal = all_equal && own.error.empty();
  }
  return all_equal;
}

// What is summed must agree in everything.
bool is_same_sum(std::vector<ThreadPart>& parts) {
  return is_same_call(parts) && is_equal(parts, another_length) && is_equal(parts, other_dtype);
}

std::vector<std::byte*> pieces_at(const std::vector<ThreadPart>& parts, std::int64_t begin) {
  std::vector<std::byte*> pieces;
  for (const ThreadPart& part : parts) pieces.push_back(data_of(part.tensor) + begin);
  return pieces;
}

}  // namespace

bool is_same_call(std::vector<ThreadPart>& parts) {
  return is_equal(parts, other_call);
}

// Folds into rank 0's tensor, which then is everybody's.
void act_all_reduce(std::vector<ThreadPart>& parts) {
  if (!is_same_sum(parts)) return;
  const at::Tensor& first = parts[0].tensor;
  fold_in_rank_order(pieces_at(parts, 0), /*own=*/0, data_of(first), first.scalar_type(),
                     first.numel());
  for (const ThreadPart& part : parts) {
    transfer(data_of(first), data_of(part.tensor), first.nbytes());
  }
}

void act_reduce_scatter(std::vector<ThreadPart>& parts) {
  if (!is_same_sum(parts)) return;
  at::Tensor scratch;  // for rank 0's piece, which is only read
  for (std::size_t r = 0; r < parts.size(); ++r) {
    const at::Tensor& shard = parts[r].shard;
    const auto bytes = static_cast<std::int64_t>(shard.nbytes());
    std::vector<std::byte*> pieces = pieces_at(parts, static_cast<std::int64_t>(r) * bytes);
    if (r >= 2 && pieces[r] == data_of(shard)) {
      if (!scratch.defined()) {
        const MemoryScope scope(MemoryCategory::kCommunication);
        scratch = at::empty({bytes}, at::kByte);
      }
      transfer(pieces[0], data_of(scratch), shard.nbytes());
      pieces[0] = data_of(scratch);
    }
    fold_in_rank_order(pieces, static_cast<int>(r), data_of(shard), shard.scalar_type(),
                       shard.numel());
  }
}

void act_all_gather(std::vector<ThreadPart>& parts) {
  if (!is_same_call(parts) || !is_equal(parts, another_length)) return;
  for (const ThreadPart& to : parts) {
    std::byte* target = data_of(to.tensor);
    for (const ThreadPart& from : parts) {
      transfer(data_of(from.shard), target, from.shard.nbytes());
      target += from.shard.nbytes();
    }
  }
}

// A rank that expects another length is told; the others get the root's tensor.
void act_broadcast(std::vector<ThreadPart>& parts) {
  if (!is_same_call(parts) || !is_equal(parts, other_root)) return;
  const ThreadPart& root = parts[static_cast<std::size_t>(parts[0].root)];
  for (ThreadPart& part : parts) {
    part.error = another_length(root, part);
    if (part.error.empty())
      transfer(data_of(root.tensor), data_of(part.tensor), part.tensor.nbytes());
  }
}

void act_message(std::vector<ThreadPart>& parts) {
  const ThreadPart& sender = parts[0];
  ThreadPart& receiver = parts[1];
  receiver.error = another_length(sender, receiver);
  if (receiver.error.empty()) {
    transfer(data_of(sender.tensor), data_of(receiver.tensor), sender.tensor.nbytes());
  }
}

void act_barrier(std::vector<ThreadPart>& parts) {
  is_same_call(parts);
}

}  // namespace ladder
