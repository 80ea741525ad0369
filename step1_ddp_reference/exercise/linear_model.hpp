// For the grader: a model whose gradients are known beforehand.
#pragma once

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/ops/full.h>
#include <ATen/ops/randn.h>

#include <cstdint>
#include <utility>
#include <vector>

#include "common/core/unit.hpp"
#include "step0_single_gpu/accumulate_gradients.hpp"

namespace ladder::step1 {

// The loss of a microbatch is Σ w · x, and x is the gradient. x is drawn with a seed that the
// microbatch carries, so that every rank can tell what every other rank's gradient must be. One
// tensor is used twice, one is frozen, and 'large' fills a bucket of its own.
class LinearModel {
 public:
  explicit LinearModel(float start) {
    for (const auto& [name, numel] : {std::pair("tied", 15), {"small", 7}, {"large", 300000}}) {
      leaves_.push_back({name, at::full({numel}, start).set_requires_grad(true)});
    }
    frozen_ = {"frozen", at::full({4}, start)};
  }

  std::vector<Unit> units() const {
    return {{"first", {leaves_[0], frozen_}}, {"second", {leaves_[1], leaves_[2]}}};
  }

  static Microbatch microbatch(std::int64_t seed) { return {at::full({1, 1}, seed), {}, 1}; }

  // `num_used` tensors take part, the last ones do not.
  LossSum loss_sum(std::size_t num_used = 3) const {
    return [this, num_used](const Microbatch& m) {
      at::Tensor loss = (frozen_.tensor * 2.0).sum();
      for (std::size_t i = 0; i < num_used; ++i) {
        const at::Tensor x = draw(m.tokens.item<std::int64_t>(), i);
        loss = loss + (leaves_[i].tensor * x).sum();
        if (i == 0) loss = loss + (leaves_[0].tensor * (x * 3.0)).sum();
      }
      return loss;
    };
  }

  static at::Tensor gradient(std::int64_t seed, std::size_t i) {
    const at::Tensor x = draw(seed, i);
    return i == 0 ? x * 3.0 + x : x;
  }

  const std::vector<NamedTensor>& leaves() const { return leaves_; }
  static constexpr std::int64_t kNumTrainable = 15 + 7 + 300000;

 private:
  static at::Tensor draw(std::int64_t seed, std::size_t i) {
    constexpr std::int64_t kNumels[] = {15, 7, 300000};
    const auto stream = static_cast<std::uint64_t>(seed) * 3 + i;
    return at::randn({kNumels[i]}, at::detail::createCPUGenerator(stream), at::kFloat);
  }

  std::vector<NamedTensor> leaves_;
  NamedTensor frozen_;
};

}  // namespace ladder::step1
