// Common to the fuzz targets: the fuzzer's bytes as a file, and what a reader may do with it.
#pragma once

#include <sys/mman.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>

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
