#include "common/comm/traffic.hpp"

#include "common/core/check.hpp"

namespace ladder {

const char* to_string(CommOp op) {
  switch (op) {
    case CommOp::kAllReduce:
      return "all_reduce";
    case CommOp::kReduceScatter:
      return "reduce_scatter";
    case CommOp::kAllGather:
      return "all_gather";
    case CommOp::kBroadcast:
      return "broadcast";
    case CommOp::kSend:
      return "send";
    case CommOp::kRecv:
      return "recv";
    case CommOp::kBarrier:
      return "barrier";
  }
  throw CheckError(concat("no such operation: ", static_cast<int>(op)));
}

std::int64_t Traffic::bytes_sent() const {
  std::int64_t bytes = 0;
  for (const OpTraffic& op : ops) bytes += op.bytes_sent;
  return bytes;
}

Traffic& Traffic::operator+=(const Traffic& other) {
  for (std::size_t i = 0; i < ops.size(); ++i) {
    ops[i].calls += other.ops[i].calls;
    ops[i].bytes_sent += other.ops[i].bytes_sent;
    ops[i].messages += other.ops[i].messages;
  }
  return *this;
}

Traffic& Traffic::operator-=(const Traffic& earlier) {
  for (std::size_t i = 0; i < ops.size(); ++i) {
    ops[i].calls -= earlier.ops[i].calls;
    ops[i].bytes_sent -= earlier.ops[i].bytes_sent;
    ops[i].messages -= earlier.ops[i].messages;
  }
  return *this;
}

Traffic& Traffic::operator*=(std::int64_t times) {
  for (OpTraffic& op : ops) {
    op.calls *= times;
    op.bytes_sent *= times;
    op.messages *= times;
  }
  return *this;
}

}  // namespace ladder
