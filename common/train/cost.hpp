// Building blocks of the steps' cost cards: pure formulas that allocate no tensor.
#pragma once

#include <vector>

#include "common/model/model_cost.hpp"
#include "common/train/layout.hpp"
#include "common/train/options/options.hpp"
#include "common/train/report/state_bytes.hpp"

namespace ladder {

// A whole replica, per element of the layout: in fp32, 4 bytes each for parameters and gradients,
// and 8 for AdamW's two moments (0 for SGD); with 16-bit parameters 2, 4, and 4 more for their
// masters.
StateBytes replica_state_bytes(const TrainOptions& options);

// The optimizer state for `numel` elements: AdamW's two moments, and masters if there are any.
std::int64_t optimizer_bytes(const TrainOptions& options, std::int64_t numel);

// The scalars of a step: the number of targets, of which each rank knows only its part; and the loss
// with the question whether to stop.
inline constexpr std::int64_t kNumTargets = 1, kNumStepSums = 2;

// The layer, embedding, block or head, in which this element of a buffer lies.
int layer_at(const FlatLayout& layout, std::int64_t start);

// ---- What a rank holds on top of its state, at most --------------------------------------------

// Where the pieces of other ranks arrive in an all_reduce or reduce_scatter of so many elements
// (tree_fold.hpp). NCCL has no such room, unless --reduction is ordered.
double fold_bytes(const TrainOptions& options, std::int64_t numel, std::int64_t bytes_each,
                  int world_size);

// Elements, padding included. A save has one unit, or less, in fp32.
std::int64_t largest_unit(const FlatLayout& layout);

// Buffers for what is sent or saved: those that may exist while backward computes, and others.
struct Buffers {
  double in_backward = 0;
  double after = 0;
};

// All that is neither parameters nor gradients nor optimizer state, and not held between steps:
// what a microbatch's forward and backward need, the token ids of a step (as many replicas' as this
// rank reads) and of an evaluation, scratch of the optimizer, buffers. A bound: buffers and activations need not peak at
// the same moment.
std::int64_t working_bytes(const TrainOptions& options, double most_activations,
                           const Buffers& buffers = {}, std::int64_t num_replicas = 1);
// The same with the activations of a whole model.
std::int64_t working_bytes(const TrainOptions& options, const Buffers& buffers = {},
                           std::int64_t num_replicas = 1);

// The layers of the options' model, for a microbatch of theirs, on one of so many owners of its
// parts.
std::vector<LayerActivations> layer_activations(const TrainOptions& options, int num_owners = 1,
                                                bool cuts_rows = false);

}  // namespace ladder
