// Units without their tensors: names and shapes, which is all that plans, theory and --dry-run need.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace ladder {

// A tensor that is a part of a larger one, which is never there as such: seen as [outer, n, inner],
// the part is begin … end of the middle. Checkpoints store the whole.
struct TensorPart {
  std::string whole;  // its name
  std::vector<std::int64_t> shape;
  std::int64_t outer = 1, n = 1, inner = 1;
  std::int64_t begin = 0, end = 0;
  int index = 0;  // which of the parts

  bool operator==(const TensorPart&) const = default;
};

struct TensorShape {
  std::string name;
  std::vector<std::int64_t> shape;
  bool is_trainable = true;
  std::optional<TensorPart> part = {};  // of which tensor it is a part, if it is
};

struct UnitShape {
  std::string name;
  std::vector<TensorShape> tensors;  // as in a Unit (unit.hpp)
};

}  // namespace ladder
