// The bytes are values in a wire format. All bytes are valid; what was decoded once is encoded
// again without another error.
#include <ATen/Functions.h>

#include <algorithm>

#include "step9_diloco/wire_format.hpp"
#include "tests/fuzz/fuzz_input.hpp"

namespace ladder {
namespace {

at::Tensor decoded(const at::Tensor& bytes, WireFormat format, std::int64_t numel) {
  const at::Tensor values = at::full({numel}, 12345, at::kFloat);
  decode(bytes, format, values);
  return values;
}

void check_round_trip(const at::Tensor& values, WireFormat format) {
  const at::Tensor sent = encode(values, format);
  must_hold(sent.numel() == encoded_bytes(values.numel(), format));
  const at::Tensor once = decoded(sent, format, values.numel());
  must_hold(at::isfinite(once).logical_and(at::isfinite(values).logical_not()).any().item<bool>() ==
            false);
  const at::Tensor twice = decoded(encode(once, format), format, values.numel());
  must_hold(at::allclose(once, twice, /*rtol=*/0, /*atol=*/0, /*equal_nan=*/true));
}

}  // namespace
}  // namespace ladder

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* bytes, std::size_t size) {
  using namespace ladder;
  FuzzBytes input(bytes, size);
  const WireFormat format = kWireFormats[input.take<std::uint8_t>() % std::size(kWireFormats)];
  std::int64_t numel = input.take<std::uint16_t>();
  std::string_view rest = input.take_bytes(size);
  if (numel >> 15 != 0) {  // as many values as there are bytes for
    const auto room = static_cast<std::int64_t>(rest.size());
    for (numel = 0; encoded_bytes(numel + 1, format) <= room;) ++numel;
    rest = rest.substr(0, static_cast<std::size_t>(encoded_bytes(numel, format)));
  }
  const at::Tensor sent = at::empty({static_cast<std::int64_t>(rest.size())}, at::kByte);
  std::ranges::copy(rest, reinterpret_cast<char*>(sent.data_ptr()));
  reads_or_refuses([&] { check_round_trip(decoded(sent, format, numel), format); });
  return 0;
}
