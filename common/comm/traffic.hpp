// What this rank has sent: calls, bytes and messages, by kind of operation.
#pragma once

#include <array>
#include <cstdint>

namespace ladder {

enum class CommOp { kAllReduce, kReduceScatter, kAllGather, kBroadcast, kSend, kRecv, kBarrier };
inline constexpr int kNumCommOps = 7;
const char* to_string(CommOp op);  // "all_reduce", "reduce_scatter", …

struct OpTraffic {
  std::int64_t calls = 0;
  // Payload handed to the transport for another rank, counted where it leaves.
  std::int64_t bytes_sent = 0;
  std::int64_t messages = 0;     // non-empty messages sent
  std::int64_t outer_bytes = 0;  // of the bytes, those to ranks on other machines
  bool operator==(const OpTraffic&) const = default;
};

struct Traffic {
  std::array<OpTraffic, kNumCommOps> ops{};

  OpTraffic& operator[](CommOp op) { return ops[static_cast<std::size_t>(op)]; }
  const OpTraffic& operator[](CommOp op) const { return ops[static_cast<std::size_t>(op)]; }
  std::int64_t bytes_sent() const;  // sum over all operations
  Traffic& operator+=(const Traffic& other);
  Traffic& operator-=(const Traffic& earlier);  // what was added since `earlier` was read
  Traffic& operator*=(std::int64_t times);
  bool operator==(const Traffic&) const = default;
};

}  // namespace ladder
