// The tensors that a checkpoint stores, as one rank holds them: whole, or only a part of each.
//
// Values go in and out one tensor at a time, in the order of their names. So a rank that holds a
// slice of a model can save the whole and never hold it: what stands in between is one tensor, or
// one unit, at a time. Names of one unit are neighbours in this order.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "common/core/unit.hpp"
#include "common/train/safetensors.hpp"

namespace ladder {

using TensorVisitor = std::function<void(const std::string& name, const at::Tensor& values)>;

struct StateTensors {
  std::vector<StoredTensor> stored;  // sorted by name: the order of the file and of its hash

  // Calls `visit` with the values of each tensor of `stored` in turn, valid until it returns. Where
  // values are spread over ranks it is collective, and `visit` is called on rank 0 alone.
  std::function<void(const TensorVisitor& visit)> for_each;

  // Calls `read` with a place for the values of this tensor, and keeps this rank's part of what it
  // puts there. Local.
  std::function<void(const std::string& name, const TensorVisitor& read)> fill;
};

// Of a rank that holds all of it: for_each() and fill() hand out these very tensors. Local.
StateTensors whole_tensors(const std::vector<NamedTensor>& tensors);

// 32 hexadecimal digits: XXH3-128 over names and bytes in the order of the names. The same for
// equal tensors however they are laid out. Calls for_each(); empty on a rank that sees no values.
std::string tensor_hash(const StateTensors& tensors);

// The same hash of tensors that come one by one, in the order of their names.
class TensorHash {
 public:
  TensorHash();
  void update(const std::string& name, const at::Tensor& values);
  std::string digest() const;

 private:
  std::shared_ptr<void> state_;
};

}  // namespace ladder
