#include "step8_pipeline_ga/stage/stage_plan.hpp"

#include <algorithm>

#include "common/core/trace.hpp"
#include "common/optim/norm.hpp"
#include "common/train/build_model.hpp"
#include "step8_pipeline_ga/pipeline_options.hpp"

namespace ladder {
namespace {

const FlatTensor* find_tensor(const FlatLayout& layout, const std::string& name) {
  const auto found = std::find_if(layout.tensors.begin(), layout.tensors.end(),
                                  [&](const FlatTensor& tensor) { return tensor.name == name; });
  return found == layout.tensors.end() ? nullptr : &*found;
}

// The stages that have each tensor of the whole model, in ascending order.
std::vector<std::vector<int>> holders_of(const FlatLayout& whole,
                                         const std::vector<FlatLayout>& stages) {
  std::vector<std::vector<int>> holders;
  for (const FlatTensor& tensor : whole.tensors) {
    holders.emplace_back();
    for (std::size_t stage = 0; stage < stages.size(); ++stage) {
      if (find_tensor(stages[stage], tensor.name) != nullptr)
        holders.back().push_back(static_cast<int>(stage));
    }
  }
  return holders;
}

std::int64_t num_blocks(std::int64_t numel) {
  return (numel + kNormBlock - 1) / kNormBlock;
}

// A copy comes last in its unit, so that the unit's own tensors are as they are in the whole model.
void plan_norm(StagePlan& plan) {
  for (const FlatUnit& unit : plan.whole.units) {
    const auto own = std::find_if(plan.layout.units.begin(), plan.layout.units.end(),
                                  [&](const FlatUnit& mine) { return mine.name == unit.name; });
    if (own != plan.layout.units.end())
      plan.norm_pieces.push_back({own->start, unit.numel, plan.num_norm_blocks});
    plan.num_norm_blocks += num_blocks(unit.numel);
  }
}

}  // namespace

StagePlan plan_stage(const TrainOptions& options, int num_stages, int stage) {
  StagePlan plan = {.cut = cut_layers(layer_costs(options), num_stages,
                                      options.get<PipelineOptions>().chunks_per_stage),
                    .stage = stage,
                    .whole = layout_of(options)};
  std::vector<FlatLayout> layouts;
  for (int s = 0; s < num_stages; ++s) layouts.push_back(layout_of(options, plan.cut.layers_of(s)));
  plan.layout = layouts[static_cast<std::size_t>(stage)];
  plan_norm(plan);
  const std::vector<std::vector<int>> holders = holders_of(plan.whole, layouts);
  for (std::size_t i = 0; i < holders.size(); ++i) {
    plan.owners.push_back(holders[i].front());
    const FlatTensor* own = find_tensor(plan.layout, plan.whole.tensors[i].name);
    if (holders[i].size() > 1 && own != nullptr) plan.tied = *own;
  }
  return plan;
}

double pipeline_norm(const StagePlan& plan, const at::Tensor& flat, Communicator& stages) {
  std::vector<double> sums(static_cast<std::size_t>(plan.num_norm_blocks));
  for (const StagePlan::NormPiece& piece : plan.norm_pieces) {
    const std::vector<double> own = block_sums({flat.narrow(0, piece.start, piece.numel)});
    std::copy(own.begin(), own.end(), sums.begin() + piece.first_block);
  }
  all_reduce_sum(sums, stages);  // one stage's value and zeros: no rounding
  return norm_of(sums);
}

std::unique_ptr<Communicator> tied_stages(const StagePlan& plan, Communicator& stages) {
  const int last = stages.size() - 1;  // those between have no plan.tied, and no color
  return stages.split_by(
      [&](int stage) { return plan.tied && (stage == 0 || stage == last) ? 0 : -1; });
}

void all_reduce_tied_gradient(const StagePlan& plan, FlatGradients& grads, Communicator* tied) {
  if (tied == nullptr) return;
  const Span span("tied gradient");
  tied->all_reduce(grads.flat().narrow(0, plan.tied->start, plan.tied->numel))->wait();
}

}  // namespace ladder
