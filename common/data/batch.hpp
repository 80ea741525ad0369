// What one optimizer step trains on: token ids, and what an objective needs to know about them.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "common/data/row_tokens.hpp"

namespace ladder {

// The rows of one forward and backward: B samples have B rows, or 2B if each is a preference pair
// or is seen in two views.
struct Microbatch {
  at::Tensor tokens;               // [B, T] int64, or [2B, T]
  at::Tensor targets;              // the same shape: the token that follows, or kIgnoredTarget
  std::int64_t num_targets = 0;    // targets other than kIgnoredTarget, in all rows; may be 0
  std::int64_t num_documents = 0;  // that begin in these rows; a pair counts as one
  std::vector<std::int64_t> samples = {};  // of the data set, from which the rows were made
  at::Tensor second_model_output = {};     // for these rows, if the objective has such a model
};

// One row of T tokens that nothing is predicted from: its loss is 0, and so is its gradient.
Microbatch no_targets(std::int64_t context);

// The microbatches of one optimizer step on one rank, in order.
class Microbatches {
 public:
  explicit Microbatches(std::vector<Microbatch> list) : list_(std::move(list)) {}
  auto begin() const { return list_.begin(); }
  auto end() const { return list_.end(); }
  const Microbatch& operator[](std::int64_t i) const {
    return list_.at(static_cast<std::size_t>(i));
  }
  Microbatch& operator[](std::int64_t i) { return list_.at(static_cast<std::size_t>(i)); }
  std::int64_t size() const { return static_cast<std::int64_t>(list_.size()); }
  std::int64_t num_targets() const {
    std::int64_t sum = 0;
    for (const Microbatch& microbatch : list_) sum += microbatch.num_targets;
    return sum;
  }
  std::int64_t num_samples() const {
    std::int64_t sum = 0;
    for (const Microbatch& m : list_) sum += static_cast<std::int64_t>(m.samples.size());
    return sum;
  }

 private:
  std::vector<Microbatch> list_;
};

}  // namespace ladder
