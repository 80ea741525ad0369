#include "common/model/cut.hpp"

#include <vector>

#include "common/model/parts.hpp"

namespace ladder {

Cut cut_columns(std::int64_t rows, std::int64_t columns, std::int64_t grain,
                std::int64_t num_matrices) {
  return {.outer = rows * num_matrices, .n = columns / num_matrices, .grain = grain};
}

Cut cut_rows(std::int64_t rows, std::int64_t columns, std::int64_t grain) {
  return {.n = rows, .inner = columns, .grain = grain};
}

TensorPart part_of(const std::string& whole, at::IntArrayRef shape, const Cut& cut, int index,
                   int total) {
  const std::int64_t num_grains = cut.n / cut.grain;
  return {.whole = whole,
          .shape = shape.vec(),
          .outer = cut.outer,
          .n = cut.n,
          .inner = cut.inner,
          .begin = cut.grain * part_begin(num_grains, index, total),
          .end = cut.grain * part_begin(num_grains, index + 1, total),
          .index = index};
}

at::Tensor place_of(const TensorPart& part, const at::Tensor& whole) {
  return whole.view({part.outer, part.n, part.inner}).slice(1, part.begin, part.end);
}

at::Tensor piece_of(const TensorPart& part, const at::Tensor& whole) {
  // Behind the dimension that is cut are `inner` elements.
  std::size_t cut = part.shape.size() - 1;
  for (std::int64_t behind = 1; behind < part.inner; --cut) behind *= part.shape[cut];
  std::vector<std::int64_t> shape = part.shape;
  shape[cut] = shape[cut] / part.n * (part.end - part.begin);
  return place_of(part, whole).reshape(shape).clone();
}

}  // namespace ladder
