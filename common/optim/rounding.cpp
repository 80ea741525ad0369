#include "common/optim/rounding.hpp"

#include <ATen/ops/empty.h>

#include <cmath>

#include "common/core/check.hpp"
#include "common/core/seed.hpp"

namespace ladder {
namespace {

// The neighbors of a value are the nearest number and the one on the value's other side. In the
// bits of a floating-point number, the next larger magnitude is the next larger integer.
template <class Narrow>
Narrow round_one(float value, double chance) {
  const Narrow nearest(value);
  const double distance = std::abs(static_cast<double>(value) - static_cast<float>(nearest));
  if (!(distance > 0) || !std::isfinite(static_cast<float>(nearest))) return nearest;
  const bool is_below = std::abs(value) > std::abs(static_cast<float>(nearest));
  Narrow other = nearest;
  other.x = static_cast<std::uint16_t>(nearest.x + (is_below ? 1 : -1));
  const double gap = std::abs(static_cast<double>(other) - static_cast<float>(nearest));
  return chance * gap < distance ? other : nearest;
}

template <class Narrow>
void round_all(const at::Tensor& values, const at::Tensor& rounded, Random random) {
  const float* from = values.const_data_ptr<float>();
  auto* to = rounded.mutable_data_ptr<Narrow>();
  for (std::int64_t i = 0; i < values.numel(); ++i)
    to[i] = round_one<Narrow>(from[i], random.uniform());
}

}  // namespace

std::uint64_t rounding_stream(std::uint64_t seed, std::int64_t step, std::string_view tensor) {
  return derive_seed(derive_seed(seed, concat("rounding in step ", step)), tensor);
}

void round_stochastically(const at::Tensor& values, const at::Tensor& rounded, std::uint64_t stream,
                          std::int64_t first) {
  check(values.is_contiguous() && rounded.is_contiguous() && values.sizes() == rounded.sizes(),
        "round_stochastically: ", values.sizes(), " into ", rounded.sizes(),
        ", it takes contiguous tensors of one size");
  if (rounded.is_cuda()) {  // on the host: slow, with the same bits
    const at::Tensor on_host = at::empty(rounded.sizes(), rounded.scalar_type());
    round_stochastically(values.cpu(), on_host, stream, first);
    rounded.copy_(on_host);
    return;
  }
  Random random(stream);
  random.skip(first);
  if (rounded.scalar_type() == at::kBFloat16)
    return round_all<at::BFloat16>(values, rounded, random);
  if (rounded.scalar_type() == at::kHalf) return round_all<at::Half>(values, rounded, random);
  throw CheckError(
      concat("round_stochastically: rounds to bf16 or fp16, not to ", rounded.scalar_type()));
}

}  // namespace ladder
