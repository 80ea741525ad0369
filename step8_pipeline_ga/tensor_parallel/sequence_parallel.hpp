// Sequence parallelism: between the parts of two layers, where tensor ranks would all compute the
// same, each keeps some rows (common/model/rows.cpp).
//
//   tensor parallel      … g: all-reduce ─ + x ─ norm ─ f ─ columns …      on all rows, t times
//   sequence parallel    … reduce-scatter ─ + x ─ norm ─ all-gather ─ …    on N / t rows
//
// An all-reduce is a reduce-scatter and an all-gather, so a rank sends as much as before, and holds
// a t-th of the residuals and of what norms keep. But what all parts use, such as a norm's weight,
// now has a gradient of some rows on each rank. So backward adds it up over the ranks.
#pragma once

#include "common/comm/mesh.hpp"
#include "common/model/parts.hpp"
#include "common/train/options/options.hpp"

namespace ladder {

// The same parts; with --sequence-parallel, rows are cut as well.
//
// Collective: what is computed with the result. In a block's forward two all-gathers and two
// reduce-scatters of [B, T, C], and in its backward the same; there, also an all-reduce of the
// gradient of each tensor that all parts use.
//
// Lifetime: the mesh's groups outlive the result.
Parts with_rows_cut(Parts parts, const Mesh& mesh, const TrainOptions& options);

}  // namespace ladder
