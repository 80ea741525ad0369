#include "common/optim/exact_sums.hpp"

#include <ATen/Parallel.h>
#include <ATen/ops/full.h>

#include <algorithm>
#include <bit>
#include <cmath>

#include "common/core/check.hpp"
#include "common/core/cuda_launch.hpp"
#include "common/core/memory_ledger.hpp"
#include "common/optim/norm.hpp"
#include "common/optim/on_gpu.hpp"
#include "common/optim/round_to.hpp"

namespace ladder {
namespace {

constexpr int kBits = 24;            // of an fp32 number: sums up to 2^24 quanta are exact
constexpr int kFirstExponent = -40;  // of the quanta, before anything is known
constexpr int kGrowth = 8;           // of the exponent, where the range was too small
constexpr int kFloor = 8;            // a block counts as 2^-8 of its unit at least

// The smallest e with 2^e >= number > 0.
int exponent_above(double number) {
  int exponent = 0;
  return std::frexp(number, &exponent) == 0.5 ? exponent - 1 : exponent;
}

// Of the range by the norm: 32 √M.
int range_exponent(std::int64_t num_microbatches) {
  return 5 + (exponent_above(static_cast<double>(num_microbatches)) + 1) / 2;
}

// How many quanta a summand may have, so that two uses in each microbatch fit into the range, and
// rounding by round_to() works.
float share_of_range(std::int64_t num_microbatches) {
  const int bits = kBits - exponent_above(2.0 * static_cast<double>(num_microbatches));
  return std::ldexp(1.0F, std::min(bits, kBits - 2));
}

// Nearly always all are in reach: then two loops without a branch, which become vector instructions.
template <class Number>
void round_run(Number* values, std::int64_t count, float quantum, float most) {
  std::uint32_t largest = 0;  // sizes have the order of their bits
  for (std::int64_t i = 0; i < count; ++i)
    largest = std::max(largest, std::bit_cast<std::uint32_t>(static_cast<float>(values[i])) << 1);
  if (largest <= std::bit_cast<std::uint32_t>(most) << 1) {
    for (std::int64_t i = 0; i < count; ++i)
      values[i] = static_cast<Number>(round_within(quantum, static_cast<float>(values[i])));
  } else {
    for (std::int64_t i = 0; i < count; ++i)
      values[i] = static_cast<Number>(round_to(quantum, most, static_cast<float>(values[i])));
  }
}

template <class Number>
void round_blocks(Number* values, std::int64_t numel, const float* quanta, std::int64_t offset,
                  float share) {
  const std::int64_t num_blocks = (offset + numel + kNormBlock - 1) / kNormBlock;
  at::parallel_for(0, num_blocks, /*grain_size=*/32, [&](std::int64_t first, std::int64_t end) {
    for (std::int64_t block = first; block < end; ++block) {
      const std::int64_t begin = std::max<std::int64_t>(0, block * kNormBlock - offset);
      const std::int64_t stop = std::min(numel, (block + 1) * kNormBlock - offset);
      round_run(values + begin, stop - begin, quanta[block], share * quanta[block]);
    }
  });
}

// Autograd's hooks hand on a gradient that nobody else has: two handles, theirs and the hook's.
bool is_ours(const at::Tensor& gradient) {
  return gradient.is_contiguous() && gradient.use_count() <= 2 &&
         gradient.storage().use_count() == 1;
}

}  // namespace

void ExactSums::cover(const FlatLayout& whole) {
  if (!is_on()) return;
  std::int64_t num_blocks = 0;
  auto tensor = whole.tensors.begin();
  for (const FlatUnit& unit : whole.units) {
    std::int64_t end = 0;
    for (; tensor != whole.tensors.end() && tensor->start < unit.start + unit.numel; ++tensor) {
      const std::int64_t start = tensor->start - unit.start;
      places_.push_back({tensor->name, {num_blocks + start / kNormBlock, start % kNormBlock}});
      end = start + tensor->numel;
    }
    const std::int64_t count = (end + kNormBlock - 1) / kNormBlock;
    units_.push_back({unit.name, num_blocks, count, (unit.numel + kNormBlock - 1) / kNormBlock});
    num_blocks += count;
  }
  std::sort(places_.begin(), places_.end(),
            [](const auto& a, const auto& b) { return a.first < b.first; });
  const MemoryScope scope(MemoryCategory::kOther, "quanta");
  quanta_ = at::full({num_blocks}, std::ldexp(1.0, kFirstExponent), at::kFloat);
  on_device_ = quanta_.to(whole.device);
}

at::Tensor ExactSums::round(const std::string& tensor, const at::Tensor& summand) const {
  const auto found = std::lower_bound(
      places_.begin(), places_.end(), tensor,
      [](const auto& place, const std::string& name) { return place.first < name; });
  check(found != places_.end() && found->first == tensor, "ExactSums: there is no tensor '", tensor,
        "'");
  const auto& [block, offset] = found->second;
  const at::Tensor rounded =
      is_ours(summand) ? summand : summand.clone(at::MemoryFormat::Contiguous);
  const float share = share_of_range(num_microbatches_);
  const float* const quanta = on_device_.const_data_ptr<float>() + block;
  if (rounded.is_cuda()) {
    round_to_quanta_on_gpu(rounded, quanta, offset, share);
  } else {
    with_float_type(rounded.scalar_type(), [&](auto number) {
      round_blocks(rounded.mutable_data_ptr<decltype(number)>(), rounded.numel(), quanta, offset,
                   share);
    });
  }
  return rounded;
}

bool ExactSums::learn(const std::vector<double>& block_sums) {
  if (!is_on()) return true;
  bool has_infinity = false;
  for (const double sum : block_sums) {
    if (std::isnan(sum)) return true;  // no quantum helps
    has_infinity = has_infinity || std::isinf(sum);
  }
  float* const quanta = quanta_.mutable_data_ptr<float>();
  bool has_learned = false;
  const double* sums = block_sums.data();
  for (const UnitBlocks& unit : units_) {
    double of_unit = 0;
    for (std::int64_t i = 0; i < unit.num_sums; ++i) of_unit += sums[i];
    for (std::int64_t i = 0; i < unit.count; ++i) {
      float& quantum = quanta[unit.first + i];
      if (has_infinity) {
        if (std::isinf(sums[i])) quantum *= std::ldexp(1.0F, kGrowth);
      } else if (of_unit > 0) {
        const double norm = std::sqrt(std::max(sums[i], std::ldexp(of_unit, -2 * kFloor)));
        const int exponent = exponent_above(norm) + range_exponent(num_microbatches_) - kBits;
        quantum = std::ldexp(1.0F, std::clamp(exponent, -126, 100));
        has_learned = true;
      }
    }
    sums += unit.num_sums;
  }
  if (!on_device_.is_same(quanta_)) on_device_.copy_(quanta_);
  if (has_infinity) return false;
  const bool was_known = std::exchange(is_known_, is_known_ || has_learned);
  return was_known == is_known_;
}

std::vector<NamedTensor> ExactSums::quanta_by_unit() const {
  std::vector<NamedTensor> views;
  for (const UnitBlocks& unit : units_)
    views.push_back({unit.name, quanta_.narrow(0, unit.first, unit.count)});
  return views;
}

void ExactSums::set_known() {
  is_known_ = true;
  if (!on_device_.is_same(quanta_)) on_device_.copy_(quanta_);
}

RoundGradients::RoundGradients(ExactSums& sums, const FlatLayout& whole,
                               const std::vector<NamedTensor>& leaves) {
  if (!sums.is_on()) return;
  sums.cover(whole);
  for (const auto& [name, leaf] : leaves) {
    if (!leaf.requires_grad()) continue;
    hooked_.push_back({leaf, leaf.register_hook([&sums, name](const at::Tensor& summand) {
                         return sums.round(name, summand);
                       })});
  }
}

RoundGradients::~RoundGradients() {
  for (const auto& [leaf, hook] : hooked_) leaf.remove_hook(hook);
}

}  // namespace ladder
