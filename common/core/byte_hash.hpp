// XXH3-128 of bytes that arrive piece by piece. It tells apart what differs by accident; it is not
// for cryptography.
#pragma once

#include <cstddef>
#include <memory>
#include <string>

namespace ladder {

class ByteHash {
 public:
  ByteHash();
  // How the bytes are divided among calls does not matter.
  void update(const void* bytes, std::size_t num_bytes);
  // 32 hexadecimal digits, of all bytes so far.
  std::string digest() const;

 private:
  std::unique_ptr<void, void (*)(void*)> state_;
};

}  // namespace ladder
