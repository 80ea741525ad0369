// The fuzzer's bytes as a sequence of numbers, for targets that build a value from them.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string_view>

namespace ladder {

class FuzzBytes {
 public:
  FuzzBytes(const std::uint8_t* bytes, std::size_t size)
      : rest_(reinterpret_cast<const char*>(bytes), size) {}

  bool is_at_end() const { return rest_.empty(); }
  // The next number; what is missing at the end is 0.
  template <class Number>
  Number take() {
    Number number = {};
    const std::string_view bytes = take_bytes(sizeof number);
    std::memcpy(&number, bytes.data(), bytes.size());
    return number;
  }
  // The next bytes, or as many as there are.
  std::string_view take_bytes(std::size_t num) {
    const std::string_view bytes = rest_.substr(0, num);
    rest_.remove_prefix(bytes.size());
    return bytes;
  }

 private:
  std::string_view rest_;
};

}  // namespace ladder
