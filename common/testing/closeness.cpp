#include "common/testing/closeness.hpp"

#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>

#include <charconv>
#include <cmath>
#include <cstring>
#include <limits>

namespace ladder {
namespace {

template <class Value>
std::string shortest(Value value) {
  char text[64];
  return std::isnan(value) ? "nan"
                           : std::string(text, std::to_chars(text, text + sizeof text, value).ptr);
}

}  // namespace

std::string digits(double value) {
  return shortest(value);
}
std::string digits(float value) {
  return shortest(value);
}

::testing::AssertionResult bits_equal(const at::Tensor& actual, const at::Tensor& expected) {
  if (actual.scalar_type() != expected.scalar_type() || actual.sizes() != expected.sizes()) {
    return ::testing::AssertionFailure()
           << "got " << actual.scalar_type() << actual.sizes() << ", expected "
           << expected.scalar_type() << expected.sizes();
  }
  const at::Tensor a = actual.detach().cpu().contiguous();
  const at::Tensor b = expected.detach().cpu().contiguous();
  const auto item_bytes = static_cast<std::size_t>(a.element_size());
  const auto* a_bytes = static_cast<const char*>(a.const_data_ptr());
  const auto* b_bytes = static_cast<const char*>(b.const_data_ptr());
  std::int64_t num_different = 0;
  std::int64_t first = -1;
  for (std::int64_t i = 0; i < a.numel(); ++i) {
    const std::size_t offset = static_cast<std::size_t>(i) * item_bytes;
    if (std::memcmp(a_bytes + offset, b_bytes + offset, item_bytes) == 0) continue;
    if (num_different++ == 0) first = i;
  }
  if (num_different == 0) return ::testing::AssertionSuccess();
  const auto text = [&](const at::Tensor& tensor) {
    std::ostringstream out;
    out.precision(std::numeric_limits<double>::max_digits10);
    const at::Tensor element = tensor.flatten()[first];
    if (element.is_floating_point()) {
      out << element.to(at::kDouble).item<double>();
    } else {
      out << element.to(at::kLong).item<std::int64_t>();
    }
    return out.str();
  };
  return ::testing::AssertionFailure()
         << num_different << " of " << a.numel() << " elements differ; the first is element "
         << first << ": got " << text(a) << ", expected " << text(b);
}

double relative_distance(const at::Tensor& actual, const at::Tensor& expected) {
  TORCH_CHECK(actual.sizes() == expected.sizes(), "relative_distance: shapes ", actual.sizes(),
              " and ", expected.sizes());
  const at::Tensor a = actual.detach().cpu().to(at::kDouble);
  const at::Tensor b = expected.detach().cpu().to(at::kDouble);
  const double difference = (a - b).norm().item<double>();
  const double reference = b.norm().item<double>();
  return difference == 0.0 && reference == 0.0 ? 0.0 : difference / reference;
}

::testing::AssertionResult close_in_norm(const at::Tensor& actual, const at::Tensor& expected,
                                         double tolerance) {
  if (actual.sizes() != expected.sizes()) {
    return ::testing::AssertionFailure()
           << "got shape " << actual.sizes() << ", expected " << expected.sizes();
  }
  const double distance = relative_distance(actual, expected);
  if (distance <= tolerance) return ::testing::AssertionSuccess();
  return ::testing::AssertionFailure()
         << "the relative distance is " << distance << ", the tolerance " << tolerance;
}

}  // namespace ladder
