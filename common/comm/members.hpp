// Which ranks of the world a group consists of, in the group's order: decorators name them.
#pragma once

#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>

#include <numeric>
#include <vector>

#include "common/comm/communicator.hpp"

namespace ladder {

// The world's own members: 0, 1, ….
inline std::vector<int> world_members(int size) {
  std::vector<int> members(static_cast<std::size_t>(size));
  std::iota(members.begin(), members.end(), 0);
  return members;
}

// The members of a group in which this rank is rank `own` of the world. Collective, blocking: each
// rank sends its 8 bytes to all others.
inline std::vector<int> members_of(Communicator& group, int own) {
  const at::Tensor all = at::empty({group.size()}, at::kLong);
  group.all_gather(at::full({1}, own, at::kLong), all)->wait();
  const auto* const first = all.const_data_ptr<std::int64_t>();
  return {first, first + all.numel()};
}

}  // namespace ladder
