#include "step8_pipeline_ga/stage/stage_plan.hpp"

#include <algorithm>
#include <utility>

#include "common/model/family.hpp"
#include "common/model/model_cost.hpp"
#include "common/train/layout.hpp"
#include "step8_pipeline_ga/pipeline_options.hpp"

namespace ladder {
namespace {

// A piece of a unit that begins at a norm block: what all parts use, or one part.
struct Section {
  std::int64_t start = 0, numel = 0;
  int part = -1;
};

// Of all units of a layout, by the unit's name and that of the first tensor.
using Sections = std::vector<std::pair<std::pair<std::string, std::string>, Section>>;

Sections sections_of(const FlatLayout& layout) {
  Sections sections;
  auto tensor = layout.tensors.begin();
  for (const FlatUnit& unit : layout.units) {
    const std::int64_t end = unit.start + unit.numel;
    const std::size_t first = sections.size();
    for (; tensor != layout.tensors.end() && tensor->start < end; ++tensor) {
      const int part = tensor->part ? tensor->part->index : -1;
      if (sections.size() > first && sections.back().second.part == part) continue;
      sections.push_back({{unit.name, tensor->name}, {tensor->start, end - tensor->start, part}});
      if (sections.size() - 1 == first) continue;
      Section& before = sections[sections.size() - 2].second;
      before.numel = tensor->start - before.start;
    }
  }
  return sections;
}

// Padding between sections depends on what follows, and so do the zeros at the end of a piece: the
// shorter one has all numbers. A copy comes last in its unit, so that the unit's own tensors are as
// they are in the whole model.
void plan_norm(StagePlan& plan) {
  const Sections own = sections_of(plan.layout);
  for (const auto& [name, section] : sections_of(plan.whole)) {
    const auto found = std::ranges::find(own, name, &Sections::value_type::first);
    const bool is_counted = section.part >= 0 || plan.parts.first == 0;
    if (found != own.end() && is_counted)
      plan.norm_pieces.push_back({found->second.start, std::min(found->second.numel, section.numel),
                                  plan.num_norm_blocks});
    plan.num_norm_blocks += num_norm_blocks(section.numel);
  }
}

// A tensor belongs to the stage that runs its layer, which is a unit of the whole model; a part, to
// the rank there that has it, and what all parts use, to the first one.
void plan_owners(StagePlan& plan) {
  const int own = plan.parts.own, ranks_per_stage = plan.parts.total / own;
  std::vector<int> stage_of(plan.whole.units.size());
  for (std::size_t chunk = 0; chunk < plan.cut.chunks.size(); ++chunk) {
    for (const std::int64_t layer : plan.cut.chunks[chunk])
      stage_of.at(static_cast<std::size_t>(layer)) = static_cast<int>(chunk) % plan.cut.num_stages;
  }
  std::size_t unit = 0;
  for (const FlatTensor& tensor : plan.whole.tensors) {
    while (tensor.start >= plan.whole.units[unit].start + plan.whole.units[unit].numel) ++unit;
    const int owner_of_part = tensor.part ? tensor.part->index / own : 0;
    plan.owners.push_back(stage_of[unit] * ranks_per_stage + owner_of_part);
  }
}

// Where a tensor is, or all parts of it, which are neighbors.
StagePlan::Range range_of(const std::string& name, const FlatLayout& layout) {
  StagePlan::Range range;
  for (const FlatTensor& tensor : layout.tensors) {
    if ((tensor.part ? tensor.part->whole : tensor.name) != name) continue;
    if (range.numel == 0) range.start = tensor.start;
    range.numel = tensor.start + tensor.numel - range.start;
  }
  return range;
}

}  // namespace

StagePlan plan_stage(const TrainOptions& options, int num_stages, int stage) {
  return plan_stage(options, num_stages, stage,
                    all_parts(static_cast<int>(options.model.product_parts)));
}

StagePlan plan_stage(const TrainOptions& options, int num_stages, int stage, const Parts& parts) {
  StagePlan plan = {.cut = cut_layers(forward_flops(options.model), num_stages,
                                      options.get<PipelineOptions>().chunks_per_stage),
                    .stage = stage,
                    .parts = parts,
                    .whole = layout_of(options)};
  plan.layout = layout_of(options, plan.cut.layers_of(stage), parts);
  plan_norm(plan);
  plan_owners(plan);
  const bool is_end = stage == 0 || stage == num_stages - 1;
  if (options.model.tie_embeddings && num_stages > 1 && is_end)
    plan.tied = range_of(traits_of(options.model.family).embedding_name(), plan.layout);
  return plan;
}

}  // namespace ladder
