// The argument checks that all transports share. A message starts with the rank, the size of the
// group and the operation, and names the values: "rank 1 of 4: all_gather: full has 7 elements, …".
//
// Local: each check sees only this rank's arguments. Throws: CheckError.
#pragma once

#include <ATen/core/Tensor.h>

#include <string>

#include "common/comm/communicator.hpp"

namespace ladder {

// "rank 1 of 4: all_gather: "
std::string message_prefix(const Communicator& comm, CommOp op);
std::string message_prefix(int rank, int size, const char* call);
// "rank 0 sent 8 bytes where 6 were expected; …", for the transport that finds it.
std::string other_length(int sender, std::int64_t sent_bytes, std::int64_t expected_bytes);

// Where a transport can reach tensors.
enum class Reach { kCpu, kAnyDevice };

// Requires a tensor that is defined, contiguous and within reach.
void check_movable(const Communicator& comm, CommOp op, const at::Tensor& tensor,
                   Reach reach = Reach::kCpu);
// Requires the same, and a dtype that can be summed.
void check_reducible(const Communicator& comm, CommOp op, const at::Tensor& tensor,
                     Reach reach = Reach::kCpu);
// Requires two movable tensors of the same dtype, on the same device, with full.numel() = size ·
// shard.numel().
void check_shards(const Communicator& comm, CommOp op, const at::Tensor& full,
                  const at::Tensor& shard, Reach reach = Reach::kCpu);
void check_root(const Communicator& comm, CommOp op, int root);
// A peer must be another rank of the group, a tag must be in [0, num_tags).
void check_peer(const Communicator& comm, CommOp op, int peer);
void check_tag(const Communicator& comm, CommOp op, int tag, std::int64_t num_tags);

}  // namespace ladder
