// One call on a communicator, as a value: what a transport carries out and a decorator passes on.
#pragma once

#include <ATen/core/Tensor.h>

#include <source_location>

#include "common/comm/traffic.hpp"

namespace ladder {

using CallSite = std::source_location;

struct Operation {
  CommOp kind;
  at::Tensor tensor = {};  // `inout`, `full`, or what is sent or received; a barrier has none
  at::Tensor shard = {};   // of a reduce_scatter or an all_gather
  int peer = 0;            // the root of a broadcast, the other rank of a send or recv
  int tag = 0;             // of a send or recv
  CallSite where = {};     // in the source; no line: unknown

  bool is_barrier() const { return kind == CommOp::kBarrier; }
  bool is_message() const { return kind == CommOp::kSend || kind == CommOp::kRecv; }
  bool is_sum() const { return kind == CommOp::kAllReduce || kind == CommOp::kReduceScatter; }
  bool has_shard() const { return kind == CommOp::kReduceScatter || kind == CommOp::kAllGather; }
};

}  // namespace ladder
