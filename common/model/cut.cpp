#include "common/model/cut.hpp"

#include <cstddef>
#include <vector>

#include "common/model/part_plan.hpp"

namespace ladder {

Cut cut_columns(std::int64_t rows, std::int64_t columns, std::int64_t grain,
                std::int64_t num_matrices) {
  return {.outer = rows * num_matrices, .n = columns / num_matrices, .grain = grain};
}

Cut cut_rows(std::int64_t rows, std::int64_t columns, std::int64_t grain) {
  return {.n = rows, .inner = columns, .grain = grain};
}

TensorPart part_of(const std::string& whole, const std::vector<std::int64_t>& shape, const Cut& cut,
                   int index, int total) {
  const std::int64_t num_grains = cut.n / cut.grain;
  return {.whole = whole,
          .shape = shape,
          .outer = cut.outer,
          .n = cut.n,
          .inner = cut.inner,
          .begin = cut.grain * part_begin(num_grains, index, total),
          .end = cut.grain * part_begin(num_grains, index + 1, total),
          .index = index};
}

// Behind the dimension that is cut are `inner` elements.
std::vector<std::int64_t> shape_of_piece(const TensorPart& part) {
  std::size_t cut = part.shape.size() - 1;
  for (std::int64_t behind = 1; behind < part.inner; --cut) behind *= part.shape[cut];
  std::vector<std::int64_t> shape = part.shape;
  shape[cut] = shape[cut] / part.n * (part.end - part.begin);
  return shape;
}

}  // namespace ladder
