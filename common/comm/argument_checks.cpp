#include "common/comm/argument_checks.hpp"

#include <algorithm>

#include "common/core/check.hpp"

namespace ladder {
namespace {

constexpr at::ScalarType kSummable[] = {at::kHalf,   at::kBFloat16, at::kFloat,
                                        at::kDouble, at::kInt,      at::kLong};

// These return what is wrong, or nothing.

std::string wrong_place(const at::Tensor& tensor, Reach reach) {
  if (!tensor.defined()) return "the tensor is undefined";
  if (!tensor.is_cpu() && !(reach == Reach::kAnyDevice && tensor.is_cuda())) {
    return concat("the tensor is on ", tensor.device(), "; this transport takes tensors on the CPU",
                  reach == Reach::kAnyDevice ? " and on GPUs" : "");
  }
  if (!tensor.is_contiguous()) {
    return concat("the tensor of shape ", tensor.sizes(), " and strides ", tensor.strides(),
                  " is not contiguous; pass tensor.contiguous()");
  }
  return {};
}

std::string wrong_shard(const at::Tensor& full, const at::Tensor& shard, int size) {
  if (full.device() != shard.device())
    return concat("full is on ", full.device(), " but the shard is on ", shard.device());
  if (full.scalar_type() != shard.scalar_type())
    return concat("full is ", full.scalar_type(), " but the shard is ", shard.scalar_type());
  if (full.numel() != size * shard.numel()) {
    return concat("full has ", full.numel(), " elements and the shard ", shard.numel(),
                  "; full must have ", size, " times as many as the shard");
  }
  return {};
}

std::string wrong_peer(const Operation& operation, int rank, int size, std::int64_t num_tags) {
  if (operation.peer == rank)
    return concat("a rank cannot be its own peer, got peer ", operation.peer);
  if (operation.peer < 0 || operation.peer >= size)
    return concat("there is no peer ", operation.peer);
  if (operation.tag < 0 || operation.tag >= num_tags)
    return concat("tag ", operation.tag, " is outside [0, ", num_tags, ")");
  return {};
}

std::string what_is_wrong(const Operation& operation, int rank, int size, Reach reach,
                          std::int64_t num_tags) {
  if (operation.is_barrier()) return {};
  std::string wrong = wrong_place(operation.tensor, reach);
  if (wrong.empty() && operation.is_sum() &&
      std::ranges::count(kSummable, operation.tensor.scalar_type()) == 0) {
    return concat("cannot sum ", operation.tensor.scalar_type(),
                  "; reductions take float16, bfloat16, float32, float64, int32, int64");
  }
  if (wrong.empty() && operation.has_shard()) wrong = wrong_place(operation.shard, reach);
  if (!wrong.empty()) return wrong;
  if (operation.has_shard()) return wrong_shard(operation.tensor, operation.shard, size);
  if (operation.is_message()) return wrong_peer(operation, rank, size, num_tags);
  if (operation.kind == CommOp::kBroadcast && (operation.peer < 0 || operation.peer >= size))
    return concat("there is no root ", operation.peer);
  return {};
}

}  // namespace

std::string message_prefix(int rank, int size, const char* call) {
  return concat("rank ", rank, " of ", size, ": ", call, ": ");
}

std::string other_length(int sender, std::int64_t sent_bytes, std::int64_t expected_bytes) {
  return concat("rank ", sender, " sent ", sent_bytes, " bytes where ", expected_bytes,
                " were expected; all ranks must pass the same dtype and numel");
}

void check_operation(const Operation& operation, const Communicator& comm, Reach reach,
                     std::int64_t num_tags) {
  const int rank = comm.rank(), size = comm.size();
  const std::string wrong = what_is_wrong(operation, rank, size, reach, num_tags);
  if (!wrong.empty())
    throw CheckError(message_prefix(rank, size, to_string(operation.kind)) + wrong);
}

}  // namespace ladder
