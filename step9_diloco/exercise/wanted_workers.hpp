// For the judge, part 2: all workers in one process, straight from the definition of a round.
//
// The model is three tensors, which are the three fragments. Learning moves a parameter by
// multiples of N/16, and the options' numbers are quarters, so no result is ever rounded, and bits
// can be compared whatever the order in which a correct answer multiplies and adds. With α = 1 the
// local parameters are not computed, so they may be any numbers, among them zeros of either sign.
// With α = 0 they do not matter, so they may even be NaN while the average is in flight.
#pragma once

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/fmod.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>

#include <array>
#include <cmath>
#include <iterator>
#include <vector>

#include "common/comm/contract/rank_values.hpp"
#include "common/core/check.hpp"
#include "common/core/unit.hpp"
#include "step9_diloco/diloco_options.hpp"

namespace ladder::step9 {

class WantedWorkers {
 public:
  static constexpr std::array<std::int64_t, 3> kNumels = {16, 32, 48};  // nothing is padding
  static constexpr std::int64_t kNumFragments = std::ssize(kNumels);

  static std::vector<Unit> model() {
    Unit unit = {"unit", {}};
    for (const std::int64_t numel : kNumels)
      unit.tensors.push_back({concat("tensor", unit.tensors.size()), start_of(numel)});
    return {unit};
  }
  // A fragment of a flat buffer of the model, as a view.
  static at::Tensor part(const at::Tensor& flat, std::int64_t fragment) {
    return flat.split_with_sizes(kNumels)[static_cast<std::size_t>(fragment)];
  }

  // The workers' parameters have this type, the global ones are fp32. `has_nan`: some parameters
  // stay at −0, and are NaN while the average is in flight. `rests`: worker 0 learns nothing.
  WantedWorkers(int num_workers, const DilocoOptions& options, at::ScalarType type, bool has_nan,
                bool rests)
      : options_(options),
        has_nan_(has_nan),
        rests_(rests),
        global_(start_of(kNumel)),
        velocity_(at::zeros({kNumel})) {
    for (int w = 0; w < num_workers; ++w) params_.push_back(start_of(kNumel).to(type));
  }

  // The next inner step of all workers. learn(params, worker) is what a worker learns in it.
  void learn() {
    ++time_;
    for (int w = 0; w < num_workers(); ++w) learn(params(w), w);
  }
  void learn(const at::Tensor& params, int worker) const {
    if (rests_ && worker == 0) return;
    if (options_.alpha == 1) {
      params.sub_(values_of(worker, kNumel, at::kFloat, static_cast<std::uint64_t>(time_)));
      params.slice(0, 0, kNumel, /*step=*/16).fill_(-0.0);
    } else {
      const at::Tensor where = at::arange(kNumel, at::kFloat);
      params.sub_((at::fmod(where * (worker + 1) + 7 * time_, 15) + 1) * num_workers() / 16);
    }
    if (!has_nan_) return;
    const bool is_in_flight = time_ % 2 == 0;
    every_16th(params).fill_(-0.0);
    if (is_in_flight) every_16th(part(params, fragment())).fill_(std::nanf(""));
  }

  void start() {
    pseudogradients_.clear();
    for (const at::Tensor& params : params_)
      pseudogradients_.push_back(part(global_, fragment()) - part(params, fragment()));
    const auto of_worker = [&](int w) { return pseudogradients_[static_cast<std::size_t>(w)]; };
    average_ = wanted_tree(0, num_workers(), of_worker) / num_workers();
  }
  void finish(bool is_agreed) {
    const at::Tensor global = part(global_, fragment()), velocity = part(velocity_, fragment());
    if (is_agreed) {
      velocity.copy_(options_.outer_momentum * velocity + average_);
      global.copy_(global - options_.outer_lr * (average_ + options_.outer_momentum * velocity));
    }
    const double kept = is_agreed ? options_.alpha : 0;
    for (const at::Tensor& params : params_) {
      const at::Tensor local = part(params, fragment());
      if (kept == 0) local.copy_(global);
      if (kept > 0 && kept < 1) local.copy_((1 - kept) * global + kept * local);
    }
    outer_steps_ += is_agreed ? 1 : 0;
  }

  std::int64_t fragment() const { return outer_steps_ % kNumFragments; }  // the round's
  std::int64_t outer_steps() const { return outer_steps_; }
  const at::Tensor& pseudogradient(int worker) const {
    return pseudogradients_[static_cast<std::size_t>(worker)];
  }
  const at::Tensor& average() const { return average_; }
  const at::Tensor& params(int worker) const { return params_[static_cast<std::size_t>(worker)]; }
  const at::Tensor& global() const { return global_; }
  const at::Tensor& velocity() const { return velocity_; }

 private:
  static constexpr std::int64_t kNumel = 96;

  static at::Tensor start_of(std::int64_t numel) {
    const at::Tensor values = at::ones({numel});
    every_16th(values).fill_(-0.0);
    return values;
  }
  static at::Tensor every_16th(const at::Tensor& values) {
    return values.slice(0, /*start=*/1, values.numel(), /*step=*/16);
  }
  int num_workers() const { return static_cast<int>(params_.size()); }

  DilocoOptions options_;
  bool has_nan_, rests_;
  std::vector<at::Tensor> params_, pseudogradients_;  // by worker
  at::Tensor global_, velocity_, average_;
  std::int64_t time_ = 0, outer_steps_ = 0;
};

}  // namespace ladder::step9
