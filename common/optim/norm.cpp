#include "common/optim/norm.hpp"

#include <algorithm>
#include <array>
#include <cmath>

#include "common/core/check.hpp"
#include "common/core/cuda_launch.hpp"
#include "common/core/trace.hpp"
#include "common/optim/on_gpu.hpp"

namespace ladder {
namespace {

// Keeps sixteen running sums, with element i in sum i mod 16. They are independent, so they fill
// vector registers, and appended zeros change none of them.
template <class Number>
double sum_of_squares(const Number* values, std::int64_t count) {
  constexpr std::int64_t kLanes = 16;
  std::array<double, kLanes> sums{};
  const std::int64_t whole = count / kLanes * kLanes;
  for (std::int64_t i = 0; i < whole; i += kLanes) {
    for (std::int64_t lane = 0; lane < kLanes; ++lane) {
      const double value = static_cast<float>(values[i + lane]);
      sums[static_cast<std::size_t>(lane)] += value * value;
    }
  }
  for (std::int64_t i = whole; i < count; ++i) {
    const double value = static_cast<float>(values[i]);
    sums[static_cast<std::size_t>(i - whole)] += value * value;
  }
  double total = 0;
  for (const double sum : sums) total += sum;
  return total;
}

template <class Number>
void append_block_sums(const at::Tensor& piece, std::vector<double>& sums) {
  const auto* values = piece.const_data_ptr<Number>();
  for (std::int64_t start = 0; start < piece.numel(); start += kNormBlock)
    sums.push_back(sum_of_squares(values + start, std::min(kNormBlock, piece.numel() - start)));
}

}  // namespace

std::vector<double> block_sums(const std::vector<at::Tensor>& pieces) {
  const Span span("norm");
  if (!pieces.empty() && pieces.front().is_cuda()) return block_sums_on_gpu(pieces);
  std::vector<double> sums;
  for (const at::Tensor& piece : pieces) {
    check(piece.is_contiguous() && piece.is_cpu(),
          "block_sums() takes contiguous pieces on the CPU");
    with_float_type(piece.scalar_type(),
                    [&](auto number) { append_block_sums<decltype(number)>(piece, sums); });
  }
  return sums;
}

Norm norm_of(std::vector<double> block_sums) {
  double total = 0;
  for (const double sum : block_sums) total += sum;
  return {std::sqrt(total), std::move(block_sums)};
}

Norm flat_norm(const FlatLayout& layout, const at::Tensor& flat) {
  return norm_of(block_sums(unit_views(layout, flat)));
}

Norm parameter_norm(const FlatModel& model) {
  return flat_norm(model.layout(), model.params());
}

Norm gradient_norm(const FlatGradients& grads) {
  return flat_norm(grads.layout(), grads.flat());
}

double clip_factor(double norm, double clip_norm) {
  return clip_norm > 0 ? std::min(1.0, clip_norm / (norm + 1e-6)) : 1.0;
}

Clipping::Clipping(Norm of_scaled, double clip_norm, double loss_scale)
    : scaled(std::move(of_scaled)),
      norm(scaled / loss_scale),
      factor(clip_factor(norm, clip_norm) / loss_scale) {}

}  // namespace ladder
