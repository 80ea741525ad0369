#include "common/model/pieces.hpp"

#include "common/model/cut.hpp"

namespace ladder {

at::Tensor place_of(const TensorPart& part, const at::Tensor& whole) {
  return whole.view({part.outer, part.n, part.inner}).slice(1, part.begin, part.end);
}

at::Tensor piece_of(const TensorPart& part, const at::Tensor& whole) {
  return place_of(part, whole).reshape(shape_of_piece(part)).clone();
}

}  // namespace ladder
