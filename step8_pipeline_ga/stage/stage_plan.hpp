// What one stage holds, and its place in the whole model.
//
// Each stage keeps parameters, gradients and optimizer state of its own layers only: their layout
// is the stage's own. (Where several ranks share a stage's layers, each has some parts of them, and
// "stage" below means one of these ranks; what all parts use, each of them has.) Three things still concern the whole model: the gradient norm, which adds up
// blocks of all stages in the whole model's order; a checkpoint, which stores each tensor once; and
// a tied token embedding, which the first stage looks up and the last one multiplies with. If these
// are different stages, the last one has a copy. The copy counts in neither norm nor checkpoint.
//
// A plan is a value; it depends only on the options, the number of stages and the stage.
//
// Collective over the stages: the functions that take their communicator. Every stage of a replica
//                             calls them at the same point.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "common/model/part_plan.hpp"
#include "common/optim/flat_layout.hpp"
#include "common/train/options/options.hpp"
#include "step8_pipeline_ga/stage/pipeline_cut.hpp"

namespace ladder {

class Communicator;
class FlatGradients;  // flat_model.hpp
struct Norm;          // norm.hpp

struct StagePlan {
  PipelineCut cut;
  int stage = 0;
  Parts parts;        // which parts of its layers
  FlatLayout whole;   // of all layers: the layout of a single process
  FlatLayout layout;  // of this stage's own

  // A piece of the stage's buffers that starts at a block boundary, and the place of its first
  // block of 1024 elements among the blocks of the whole model.
  struct NormPiece {
    std::int64_t start = 0;
    std::int64_t numel = 0;
    std::int64_t first_block = 0;
  };
  // What this stage adds to a norm: of each unit, its parts and, on one rank, what all parts use; no
  // copy.
  std::vector<NormPiece> norm_pieces;
  std::int64_t num_norm_blocks = 0;  // of the whole model

  // Of each tensor of `whole`: the rank of the replica that stores it in a checkpoint.
  std::vector<int> owners;
  struct Range {
    std::int64_t start = 0, numel = 0;
  };
  // The tied embedding in this stage's layout, if the first and the last stage both have it.
  std::optional<Range> tied;
};

// Throws what cut_layers() throws. `parts`: those of the rank; without, all of them.
StagePlan plan_stage(const TrainOptions& options, int num_stages, int stage, const Parts& parts);
StagePlan plan_stage(const TrainOptions& options, int num_stages, int stage);

// The norm of the whole model's parameters or gradients, of which `flat` [plan.layout.numel] is
// this stage's part. To the bit that of one process: each stage fills in its own block sums, one
// double per 1024 elements, and all of them are added up in the whole model's order. `stages`: all
// ranks of the replica.
Norm pipeline_norm(const StagePlan& plan, const at::Tensor& flat, Communicator& stages);

// The group of the first and the last stage, if they share a tied embedding; null on all other
// stages, and everywhere if there is nothing to share.
std::unique_ptr<Communicator> tied_stages(const StagePlan& plan, Communicator& stages);

// Adds up the two parts of the tied embedding's gradient, on both stages: one all-reduce of V·C
// elements. Does nothing without a group. Both then take the same optimizer steps, so that the copy
// stays equal to the original.
void all_reduce_tied_gradient(const StagePlan& plan, FlatGradients& grads, Communicator* tied);

}  // namespace ladder
