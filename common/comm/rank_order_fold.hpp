// The one sum of the repository: ((x0 + x1) + x2) + …, in rank order, element by element.
//
// Floating-point addition is not associative, so "the sum over ranks" has as many results as it has
// orders. This order starts with rank 0's value itself (not with zero) and depends neither on who
// computes it nor on how the elements are cut into chunks: the same bits everywhere.
#pragma once

#include <c10/core/ScalarType.h>

#include <cstdint>
#include <vector>

namespace ladder {

struct ElementRange {
  std::int64_t begin = 0;
  std::int64_t numel = 0;
};

// Chunk `index` of `numel` elements cut into `num_chunks`, equal up to one element: the first
// numel % num_chunks chunks are one longer. With fewer elements than chunks the last are empty.
ElementRange chunk_of(std::int64_t numel, int num_chunks, int index);

// target[i] = ((x0[i] + x1[i]) + x2[i]) + … where x_r = pieces[r], `numel` elements of `dtype`
// each.
//
// `own` is the rank whose piece is not scratch: pieces[own] is only read, unless it is the target
// itself; the other pieces may be overwritten. Elements need no alignment beyond their own size.
void fold_in_rank_order(const std::vector<std::byte*>& pieces, int own, std::byte* target,
                        c10::ScalarType dtype, std::int64_t numel);

}  // namespace ladder
