// The cross-entropy of logits whose vocabulary is cut into parts: no process needs the logits of
// another one's tokens.
//
// A row's loss is log Σ exp(x_j) − x_target over the whole vocabulary. Of its own tokens, an owner
// finds out three numbers:
//
//   max      the largest logit
//   sum      Σ exp(x_j − max)
//   target   the target's logit, or 0 if it is another one's token
//
// Two such triples make one: the sums, scaled to the larger of both maxima, add up, and so do the
// targets (an online softmax, as in common/model/softmax_sum.hpp). All parts are joined by the tree
// of tree_sum.hpp. Owners tell each other three numbers a row, where whole rows have V (Shoeybi et
// al., arXiv 1909.08053, section 3). Backward needs nothing of anybody: softmax − 1 for the
// target's logit, softmax for every other.
#pragma once

#include <ATen/core/Tensor.h>

#include "common/model/parts.hpp"

namespace ladder {

// cross_entropy_sum() (objective.hpp) of the logits of this process's parts side by side,
// [..., its tokens], for targets [...] in the whole vocabulary. Returns the same [] on all owners.
// The bits depend on the number of parts, not on who has which. For backward, it keeps one fp32
// number of each logit, and a few of each row.
//
// Collective: over the owners of parts, forward only: one sum of 3 · owners fp32 numbers a row.
at::Tensor cross_entropy_sum(const at::Tensor& logits, const at::Tensor& targets,
                             const VocabParts& parts);

}  // namespace ladder
