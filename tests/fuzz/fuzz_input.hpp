// Common to the fuzz targets: the fuzzer's bytes as a file or as numbers, and what a reader may do
// with them.
#pragma once

#include <sys/mman.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <string>
#include <string_view>

#include "common/core/check.hpp"

namespace ladder {

// A file in memory, with an ordinary path.
class FuzzFile {
 public:
  FuzzFile(const std::uint8_t* bytes, std::size_t size) : descriptor_(::memfd_create("fuzz", 0)) {
    if (::write(descriptor_, bytes, size) != static_cast<ssize_t>(size)) std::abort();
  }
  ~FuzzFile() { ::close(descriptor_); }
  FuzzFile(const FuzzFile&) = delete;
  FuzzFile& operator=(const FuzzFile&) = delete;

  std::string path() const { return "/proc/self/fd/" + std::to_string(descriptor_); }

 private:
  int descriptor_;
};

// A sequence of numbers, for targets that build a value from them.
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

// Reads, or refuses by CheckError. Any other exception ends the process, which the fuzzer reports.
template <class Read>
void reads_or_refuses(Read&& read) {
  try {
    read();
  } catch (const CheckError&) {
  }
}

// Must be true of everything that has been read.
inline void must_hold(bool fact) {
  if (!fact) std::abort();
}

}  // namespace ladder
