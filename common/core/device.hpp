// Where a model lives and is computed: on the CPU, or on this rank's GPU.
#pragma once

namespace ladder {

class Device {
 public:
  enum Kind { kCpu, kCuda };

  constexpr Device(Kind kind = kCpu) : kind_(kind) {}  // NOLINT(*-explicit-*)
  constexpr bool is_cpu() const { return kind_ == kCpu; }
  constexpr bool is_cuda() const { return kind_ == kCuda; }
  bool operator==(const Device&) const = default;

 private:
  Kind kind_;
};

}  // namespace ladder
