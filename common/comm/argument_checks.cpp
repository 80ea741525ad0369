#include "common/comm/argument_checks.hpp"

#include "common/core/check.hpp"

namespace ladder {
namespace {

bool can_be_summed(at::ScalarType dtype) {
  switch (dtype) {
    case at::kHalf:
    case at::kBFloat16:
    case at::kFloat:
    case at::kDouble:
    case at::kInt:
    case at::kLong:
      return true;
    default:
      return false;
  }
}

}  // namespace

std::string message_prefix(const Communicator& comm, CommOp op) {
  return message_prefix(comm.rank(), comm.size(), to_string(op));
}

std::string message_prefix(int rank, int size, const char* call) {
  return concat("rank ", rank, " of ", size, ": ", call, ": ");
}

std::string other_length(int sender, std::int64_t sent_bytes, std::int64_t expected_bytes) {
  return concat("rank ", sender, " sent ", sent_bytes, " bytes where ", expected_bytes,
                " were expected; all ranks must pass the same dtype and numel");
}

void check_movable(const Communicator& comm, CommOp op, const at::Tensor& tensor, Reach reach) {
  if (!tensor.defined()) throw CheckError(message_prefix(comm, op) + "the tensor is undefined");
  const bool is_within_reach = tensor.is_cpu() || (reach == Reach::kAnyDevice && tensor.is_cuda());
  if (!is_within_reach) {
    throw CheckError(concat(message_prefix(comm, op), "the tensor is on ", tensor.device(),
                            "; this transport takes tensors on the CPU",
                            reach == Reach::kAnyDevice ? " and on GPUs" : ""));
  }
  if (!tensor.is_contiguous()) {
    throw CheckError(concat(message_prefix(comm, op), "the tensor of shape ", tensor.sizes(),
                            " and strides ", tensor.strides(),
                            " is not contiguous; pass tensor.contiguous()"));
  }
}

void check_reducible(const Communicator& comm, CommOp op, const at::Tensor& tensor, Reach reach) {
  check_movable(comm, op, tensor, reach);
  if (!can_be_summed(tensor.scalar_type())) {
    throw CheckError(concat(message_prefix(comm, op), "cannot sum ", tensor.scalar_type(),
                            "; reductions take float16, bfloat16, float32, float64, int32, int64"));
  }
}

void check_shards(const Communicator& comm, CommOp op, const at::Tensor& full,
                  const at::Tensor& shard, Reach reach) {
  check_movable(comm, op, full, reach);
  check_movable(comm, op, shard, reach);
  if (full.device() != shard.device()) {
    throw CheckError(concat(message_prefix(comm, op), "full is on ", full.device(),
                            " but the shard is on ", shard.device()));
  }
  if (full.scalar_type() != shard.scalar_type()) {
    throw CheckError(concat(message_prefix(comm, op), "full is ", full.scalar_type(),
                            " but the shard is ", shard.scalar_type()));
  }
  if (full.numel() != comm.size() * shard.numel()) {
    throw CheckError(concat(message_prefix(comm, op), "full has ", full.numel(),
                            " elements and the shard ", shard.numel(), "; full must have ",
                            comm.size(), " times as many as the shard"));
  }
}

void check_root(const Communicator& comm, CommOp op, int root) {
  if (root >= 0 && root < comm.size()) return;
  throw CheckError(concat(message_prefix(comm, op), "there is no root ", root));
}

void check_peer(const Communicator& comm, CommOp op, int peer) {
  if (peer >= 0 && peer < comm.size() && peer != comm.rank()) return;
  throw CheckError(
      concat(message_prefix(comm, op),
             peer == comm.rank() ? "a rank cannot be its own peer, got peer " : "there is no peer ",
             peer));
}

void check_tag(const Communicator& comm, CommOp op, int tag, std::int64_t num_tags) {
  if (tag >= 0 && tag < num_tags) return;
  throw CheckError(
      concat(message_prefix(comm, op), "tag ", tag, " is outside [0, ", num_tags, ")"));
}

}  // namespace ladder
