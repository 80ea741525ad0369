// The tensors that a checkpoint stores, as one rank holds them: whole, or only a part of each.
//
// Values go in and out one tensor at a time, in the order of their names. So ranks that hold slices
// of a model can save all of it without any rank ever holding all of it: at most one tensor, or one
// unit, is whole at a time. Names of one unit are neighbors in this order.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "common/core/byte_hash.hpp"
#include "common/core/unit.hpp"
#include "common/train/checkpoint/safetensors.hpp"

namespace ladder {

using TensorVisitor = std::function<void(const std::string& name, const at::Tensor& values)>;

struct StateTensors {
  std::vector<StoredTensor> stored;  // sorted by name: the order of the file and of its hash

  // Calls `visit` with the values of each tensor in `stored`, valid until `visit` returns. If the
  // values are spread over ranks, this is collective and calls `visit` on rank 0 only.
  std::function<void(const TensorVisitor& visit)> for_each;

  // Calls `read` with a buffer for the values of this tensor, and keeps this rank's part of what
  // `read` writes there. Local.
  std::function<void(const std::string& name, const TensorVisitor& read)> fill;
};

// For a rank that holds everything: for_each() and fill() pass on these very tensors. Local.
StateTensors whole_tensors(const std::vector<NamedTensor>& tensors);

// A tensor that a file holds.
struct FoundTensor : StoredTensor {
  std::string file;
};

// Throws CheckError unless those are the wanted tensors and no others, each of them with
// fits(found, wanted). `from` is what should hold them; the message ends with the hint.
void check_found(
    const std::vector<FoundTensor>& found, const StateTensors& wanted, const std::string& from,
    const std::function<bool(const StoredTensor& found, const StoredTensor& wanted)>& fits,
    const char* hint = "");

// Passes each tensor's buffer to `read`, which fills it. Returns the tensors' hash. Local.
std::string fill_all(const StateTensors& tensors, const TensorVisitor& read);

// The same tensors as fp32, whatever they are kept as: what is read into them is rounded.
StateTensors in_fp32(const StateTensors& tensors);

// 32 hexadecimal digits: XXH3-128 over names and bytes in the order of the names. Equal for equal
// tensors, however they are laid out. Calls for_each(); empty on a rank that sees no values.
std::string tensor_hash(const StateTensors& tensors);

// tensor_hash() of tensors that arrive one by one, in the order of their names.
class TensorHash {
 public:
  void update(const std::string& name, const at::Tensor& values);
  std::string digest() const { return bytes_.digest(); }

 private:
  ByteHash bytes_;
};

}  // namespace ladder
