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

void transfer(const std::byte* from, std::byte* to, std::size_t bytes) {
  if (bytes > 0 && from != to) std::memcpy(to, from, bytes);
}

std::string another_length(const ThreadPart& sender, const ThreadPart& receiver) {
  const std::size_t sent = sender.operation.tensor.nbytes();
  const std::size_t expected = receiver.operation.tensor.nbytes();
  if (sent == expected) return {};
  return other_length(sender.rank, static_cast<std::int64_t>(sent),
                      static_cast<std::int64_t>(expected));
}

std::string other_call(const ThreadPart& other, const ThreadPart& own) {
  if (std::string_view(other.call) == own.call) return {};
  return concat("rank ", other.rank, " called ", other.call,
                "; all ranks must call the same operations in the same order");
}

std::string other_root(const ThreadPart& other, const ThreadPart& own) {
  if (other.operation.peer == own.operation.peer) return {};
  return concat("the root is ", own.operation.peer, " here and ", other.operation.peer, " on rank ",
                other.rank);
}

std::string other_dtype(const ThreadPart& other, const ThreadPart& own) {
  const at::ScalarType sent = other.operation.tensor.scalar_type();
  const at::ScalarType expected = own.operation.tensor.scalar_type();
  if (sent == expected) return {};
  return concat("rank ", other.rank, " sent ", sent, " where ", expected,
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

std::vector<std::byte*> pieces_at(const std::vector<ThreadPart>& parts, std::int64_t begin) {
  std::vector<std::byte*> pieces;
  for (const ThreadPart& part : parts) pieces.push_back(data_of(part.operation.tensor) + begin);
  return pieces;
}

// Folds into rank 0's tensor, which then is everybody's.
void all_reduce(const std::vector<ThreadPart>& parts) {
  const at::Tensor& first = parts[0].operation.tensor;
  fold_in_rank_order(pieces_at(parts, 0), /*own=*/0, data_of(first), first.scalar_type(),
                     first.numel());
  for (const ThreadPart& part : parts)
    transfer(data_of(first), data_of(part.operation.tensor), first.nbytes());
}

void reduce_scatter(const std::vector<ThreadPart>& parts) {
  at::Tensor scratch;  // for rank 0's piece, which is only read
  for (std::size_t r = 0; r < parts.size(); ++r) {
    const at::Tensor& shard = parts[r].operation.shard;
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

void all_gather(const std::vector<ThreadPart>& parts) {
  for (const ThreadPart& to : parts) {
    std::byte* target = data_of(to.operation.tensor);
    for (const ThreadPart& from : parts) {
      transfer(data_of(from.operation.shard), target, from.operation.shard.nbytes());
      target += from.operation.shard.nbytes();
    }
  }
}

// A rank that expects another length is told.
void copy_to(ThreadPart& receiver, const ThreadPart& sender) {
  const at::Tensor& sent = sender.operation.tensor;
  receiver.error = another_length(sender, receiver);
  if (receiver.error.empty())
    transfer(data_of(sent), data_of(receiver.operation.tensor), sent.nbytes());
}

}  // namespace

bool is_same_call(std::vector<ThreadPart>& parts) {
  return is_equal(parts, other_call);
}

void exchange(std::vector<ThreadPart>& parts) {
  const Operation& operation = parts[0].operation;
  if (operation.is_message()) return copy_to(parts[1], parts[0]);
  if (!is_same_call(parts)) return;
  switch (operation.kind) {
    case CommOp::kAllReduce:
      if (is_equal(parts, another_length) && is_equal(parts, other_dtype)) all_reduce(parts);
      break;
    case CommOp::kReduceScatter:
      if (is_equal(parts, another_length) && is_equal(parts, other_dtype)) reduce_scatter(parts);
      break;
    case CommOp::kAllGather:
      if (is_equal(parts, another_length)) all_gather(parts);
      break;
    case CommOp::kBroadcast:
      if (!is_equal(parts, other_root)) break;
      for (ThreadPart& part : parts) copy_to(part, parts[static_cast<std::size_t>(operation.peer)]);
      break;
    default:  // a barrier
      break;
  }
}

}  // namespace ladder
