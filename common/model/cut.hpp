// Which piece of a weight a part of a layer has (parts.hpp): columns of a product, then rows of the
// next one.
//
//   y = x W, W [in, out]      columns: part p computes some outputs, and needs all of x
//                             rows: part p has some inputs, and its products are summands of y
//
// A piece is never in the middle of a head's channels: its length is a multiple of a grain.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "common/core/unit_shape.hpp"

namespace ladder {

// How a tensor is cut: seen as [outer, n, inner], along n, into pieces of whole grains.
struct Cut {
  std::int64_t outer = 1, n = 1, inner = 1;
  std::int64_t grain = 1;  // the channels of a head
};

// Columns of a tensor of `rows` rows of `columns` elements. If it is several matrices side by side
// (queries, keys and values), a part has such columns of each of them.
Cut cut_columns(std::int64_t rows, std::int64_t columns, std::int64_t grain,
                std::int64_t num_matrices = 1);
// Rows of such a tensor.
Cut cut_rows(std::int64_t rows, std::int64_t columns, std::int64_t grain);

// Part `index` of `total` of a tensor of this name and shape. part_begin() deals its grains, so parts
// differ by one at most.
TensorPart part_of(const std::string& whole, const std::vector<std::int64_t>& shape, const Cut& cut,
                   int index, int total);

// The shape of a part: the whole's but for the dimension that is cut.
std::vector<std::int64_t> shape_of_piece(const TensorPart& part);

}  // namespace ladder
