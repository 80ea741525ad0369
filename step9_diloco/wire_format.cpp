#include "step9_diloco/wire_format.hpp"

#include "common/core/check.hpp"

namespace ladder {

std::int64_t num_wire_blocks(std::int64_t numel) {
  return (numel + kWireBlock - 1) / kWireBlock;
}

std::int64_t encoded_bytes(std::int64_t numel, WireFormat format) {
  switch (format) {
    case WireFormat::kFp32:
      return 4 * numel;
    case WireFormat::kBf16:
      return 2 * numel;
    case WireFormat::kInt8:
      return numel + 2 * num_wire_blocks(numel);
  }
  throw CheckError("no such wire format");
}

}  // namespace ladder
