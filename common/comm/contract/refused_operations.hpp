// For tests: operations that every transport refuses when they start, and a part of what it says.
#pragma once

#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>

#include <string>
#include <vector>

#include "common/comm/operation.hpp"
#include "common/core/check.hpp"

namespace ladder {

struct RefusedOperation {
  Operation operation;
  std::string why;
};

inline std::vector<RefusedOperation> refused_operations(int rank, int size) {
  const at::Tensor two = at::zeros({2}), full = at::zeros({2 * size});
  std::vector<RefusedOperation> refused = {
      {{CommOp::kAllReduce}, "undefined"},
      {{CommOp::kAllReduce, at::zeros({2, 3}).t()}, "[3, 2] and strides [1, 3] is not contiguous"},
      {{CommOp::kAllReduce, at::zeros({2}, at::kComplexFloat)}, "cannot sum ComplexFloat"},
      {{CommOp::kAllReduce, at::zeros({2}, at::kBool)}, "cannot sum Bool"},
      {{CommOp::kAllReduce, at::empty({2}, at::kMeta)}, "on meta"},
      {{CommOp::kReduceScatter, full, at::empty({2}, at::kMeta)}, "on meta"},
      {{CommOp::kReduceScatter, full}, "undefined"},
      {{CommOp::kReduceScatter, full, two.to(at::kDouble)},
       "full is Float but the shard is Double"},
      {{CommOp::kReduceScatter, at::zeros({2 * size + 1}), two},
       concat("full has ", 2 * size + 1, " elements and the shard 2")},
      {{CommOp::kAllGather, full.to(at::kInt), two}, "full is Int but the shard is Float"},
      {{CommOp::kBroadcast, two, {}, size}, concat("no root ", size)},
      {{CommOp::kBroadcast, two, {}, -1}, "no root -1"},
      {{CommOp::kSend, two, {}, size}, concat("no peer ", size)},
      {{CommOp::kRecv, two, {}, rank}, concat("its own peer, got peer ", rank)}};
  if (size > 1) refused.push_back({{CommOp::kSend, two, {}, (rank + 1) % size, -5}, "tag -5"});
  return refused;
}

}  // namespace ladder
