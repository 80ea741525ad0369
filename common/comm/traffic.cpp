#include "common/comm/traffic.hpp"

#include <iterator>

#include "common/core/check.hpp"

namespace ladder {

const char* to_string(CommOp op) {
  static constexpr const char* kNames[] = {
      "all_reduce", "reduce_scatter", "all_gather", "broadcast", "send", "recv", "barrier"};
  static_assert(std::size(kNames) == kNumCommOps);
  const auto index = static_cast<std::size_t>(op);
  check(index < std::size(kNames), "no such operation: ", index);
  return kNames[index];
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
    ops[i].outer_bytes += other.ops[i].outer_bytes;
  }
  return *this;
}

Traffic& Traffic::operator-=(const Traffic& earlier) {
  Traffic negative = earlier;
  negative *= -1;
  return *this += negative;
}

Traffic& Traffic::operator*=(std::int64_t times) {
  for (OpTraffic& op : ops) {
    op.calls *= times;
    op.bytes_sent *= times;
    op.messages *= times;
    op.outer_bytes *= times;
  }
  return *this;
}

}  // namespace ladder
