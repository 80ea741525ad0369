#include "common/optim/exact_sums.hpp"

#include <ATen/Parallel.h>
#include <ATen/ops/full.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <span>
#include <type_traits>

#include "common/core/check.hpp"
#include "common/core/cuda_launch.hpp"
#include "common/core/memory_ledger.hpp"
#include "common/core/torch_types.hpp"
#include "common/optim/norm.hpp"
#include "common/optim/on_gpu.hpp"
#include "common/optim/quanta.hpp"

namespace ladder {
namespace {

constexpr int kFirstExponent = -40;  // of the quanta, before anything is known
constexpr float kSmallestQuantum = 0x1p-126F;
constexpr float kTooCoarse = 0x1p8F;  // so many times what a sum asks for

// Numbers of 16 bits by way of fp32.
template <class Number>
void round_in_fp32(Number* values, std::int64_t numel, float quantum, float share) {
  if constexpr (std::is_same_v<Number, float>) {
    round_block(values, numel, quantum, share);
  } else {
    std::array<float, kNormBlock> wide;
    std::copy_n(values, numel, wide.begin());
    round_block(wide.data(), numel, quantum, share);
    std::copy_n(wide.begin(), numel, values);
  }
}

template <class Number>
void round_blocks(Number* values, std::int64_t numel, const float* quanta, std::int64_t offset,
                  float share) {
  at::parallel_for(0, num_norm_blocks(offset + numel), /*grain_size=*/32,
                   [&](std::int64_t first, std::int64_t end) {
                     for (std::int64_t block = first; block < end; ++block) {
                       const std::int64_t begin =
                           std::max<std::int64_t>(0, block * kNormBlock - offset);
                       const std::int64_t stop = std::min(numel, (block + 1) * kNormBlock - offset);
                       round_in_fp32(values + begin, stop - begin, quanta[block], share);
                     }
                   });
}

// Autograd's hooks hand on a gradient that nobody else has: two handles, theirs and the hook's.
bool is_ours(const at::Tensor& gradient) {
  return gradient.is_contiguous() && gradient.use_count() <= 2 &&
         gradient.storage().use_count() == 1;
}

bool has_nan(const std::vector<double>& sums) {
  return std::any_of(sums.begin(), sums.end(), [](double sum) { return std::isnan(sum); });
}

float largest(std::span<const float> quanta) {
  return quanta.empty() ? 0 : *std::max_element(quanta.begin(), quanta.end());
}

bool is_zero(const UnitQuanta& unit) {
  return std::all_of(unit.block_sums.begin(), unit.block_sums.end(),
                     [](double sum) { return sum == 0; });
}

}  // namespace

ExactSums::~ExactSums() {
  for (const auto& [leaf, hook] : hooked_) leaf.remove_hook(hook);
}

void ExactSums::cover(const FlatLayout& whole, const std::vector<NamedTensor>& leaves) {
  if (num_microbatches_ == 0) return;
  std::int64_t num_blocks = 0;
  auto tensor = whole.tensors.begin();
  for (const FlatUnit& unit : whole.units) {
    std::int64_t end = 0;
    for (; tensor != whole.tensors.end() && tensor->start < unit.start + unit.numel; ++tensor) {
      const std::int64_t start = tensor->start - unit.start;
      places_[tensor->name] = {num_blocks + start / kNormBlock, start % kNormBlock};
      end = start + tensor->numel;
    }
    const std::int64_t count = num_norm_blocks(end);
    units_.push_back({unit.name, num_blocks, count, num_norm_blocks(unit.numel)});
    num_blocks += count;
  }
  const MemoryScope scope(MemoryCategory::kOther, "quanta");
  quanta_ = at::full({num_blocks}, std::ldexp(1.0, kFirstExponent), at::kFloat);
  scaled_ = quanta_.to(to_torch(whole.device));  // on a CPU, the same tensor
  for (const auto& [name, leaf] : leaves) {
    if (!leaf.requires_grad()) continue;
    hooked_.push_back({leaf, leaf.register_hook([this, name](const at::Tensor& summand) {
                         return round(name, summand);
                       })});
  }
}

void ExactSums::set_scale(double scale) {
  if (!is_on() || scale == scale_) return;
  scale_ = scale;
  const MemoryScope scope(MemoryCategory::kOther, "quanta");
  if (scaled_.is_same(quanta_)) scaled_ = quanta_.clone();
  update_scaled();
}

void ExactSums::update_scaled() {
  if (scaled_.is_same(quanta_)) return;
  scaled_.copy_(quanta_);
  scaled_.mul_(scale_);
}

at::Tensor ExactSums::round(const std::string& tensor, const at::Tensor& summand) const {
  const auto found = places_.find(tensor);
  check(found != places_.end(), "ExactSums: there is no tensor '", tensor, "'");
  const auto& [block, offset] = found->second;
  const at::Tensor rounded =
      is_ours(summand) ? summand : summand.clone(at::MemoryFormat::Contiguous);
  const float share = share_of_range(num_microbatches_);
  const float* const quanta = scaled_.const_data_ptr<float>() + block;
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
  std::int64_t num_blocks = 0;
  for (const UnitBlocks& unit : units_) num_blocks += unit.num_sums;
  check(!is_on() || std::ssize(block_sums) == num_blocks,
        "exact sums learn from the block sums of the gradient's norm: there are ",
        block_sums.size(), ", but the model has ", num_blocks, " blocks of ", kNormBlock,
        " elements; a Norm must hold the sums of all units, over all ranks, in the layout's order");
  if (!is_on()) return true;
  std::vector<double> unscaled = block_sums;
  for (double& sum : unscaled) sum /= scale_ * scale_;
  float* const quanta = quanta_.mutable_data_ptr<float>();
  const std::vector<float> before(quanta, quanta + quanta_.numel());
  std::vector<UnitQuanta> units;
  const double* sums = unscaled.data();
  for (const UnitBlocks& unit : units_) {
    units.push_back({{sums, static_cast<std::size_t>(unit.num_sums)},
                     {quanta + unit.first, static_cast<std::size_t>(unit.count)}});
    sums += unit.num_sums;
  }
  const Learned learned = learn_quanta(units, num_microbatches_);
  const bool was_known = std::exchange(is_known_, is_known_ || learned == Learned::kNextQuanta);
  const bool must_grow = learned == Learned::kLargerQuanta, is_broken = has_nan(unscaled);
  bool is_repeated = must_grow || was_known != is_known_;
  for (std::size_t i = 0; i < units.size() && !is_broken; ++i) {
    const std::span<const float> rounded_to = std::span(before).subspan(
        static_cast<std::size_t>(units_[i].first), static_cast<std::size_t>(units_[i].count));
    if (must_grow) {
      if (!std::ranges::equal(rounded_to, units[i].quanta)) units_[i].has_grown = true;
    } else if (!units_[i].has_grown && shrink(units_[i], units[i], rounded_to)) {
      is_repeated = true;
    }
  }
  for (std::size_t i = 0; i < units.size() && !is_repeated; ++i) {
    UnitBlocks& unit = units_[i];
    if (is_broken || is_zero(units[i])) std::ranges::copy(unit.kept, units[i].quanta.begin());
    unit.kept.clear();
    unit.has_grown = false;
  }
  update_scaled();
  return !is_repeated;
}

bool ExactSums::shrink(UnitBlocks& unit, const UnitQuanta& learned,
                       std::span<const float> rounded_to) {
  if (!is_zero(learned)) return largest(rounded_to) > kTooCoarse * largest(learned.quanta);
  if (!unit.kept.empty() || unit.count == 0) return false;  // not even the smallest found anything
  unit.kept.assign(rounded_to.begin(), rounded_to.end());
  std::ranges::fill(learned.quanta, kSmallestQuantum);
  return true;
}

std::vector<NamedTensor> ExactSums::quanta_by_unit() const {
  std::vector<NamedTensor> views;
  for (const UnitBlocks& unit : units_)
    views.push_back({unit.name, quanta_.narrow(0, unit.first, unit.count)});
  return views;
}

void ExactSums::set_known() {
  is_known_ = true;
  update_scaled();
}

}  // namespace ladder
