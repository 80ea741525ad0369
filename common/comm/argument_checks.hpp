// The argument checks that all transports share. A message starts with the rank, the size of the
// group and the operation, and names the values: "rank 1 of 4: all_gather: full has 7 elements, …".
//
// Local: each check sees only this rank's arguments. Throws: CheckError.
#pragma once

#include <cstdint>
#include <limits>
#include <string>

#include "common/comm/communicator.hpp"

namespace ladder {

// "rank 1 of 4: all_gather: "
std::string message_prefix(int rank, int size, const char* call);
// "rank 0 sent 8 bytes where 6 were expected; …", for the transport that finds it.
std::string other_length(int sender, std::int64_t sent_bytes, std::int64_t expected_bytes);

// Where a transport can reach tensors.
enum class Reach { kCpu, kAnyDevice };

// What start() begins with in every transport. Requires tensors that are defined, contiguous and
// within reach; for a sum, a dtype that can be summed; a shard of the same dtype and on the same
// device as its `full`, which has size() times as many elements; a root in the group, a peer that
// is another rank of it, and a tag in [0, num_tags).
void check_operation(const Operation& operation, const Communicator& comm,
                     Reach reach = Reach::kCpu,
                     std::int64_t num_tags = std::numeric_limits<int>::max());

}  // namespace ladder
