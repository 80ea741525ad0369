// What the stages of a plan (stage_plan.hpp) add up together.
#include <algorithm>
#include <utility>

#include "common/comm/communicator.hpp"
#include "common/core/trace.hpp"
#include "common/optim/norm.hpp"
#include "step8_pipeline_ga/stage/stage_plan.hpp"

namespace ladder {

Norm pipeline_norm(const StagePlan& plan, const at::Tensor& flat, Communicator& stages) {
  std::vector<double> sums(static_cast<std::size_t>(plan.num_norm_blocks));
  for (const StagePlan::NormPiece& piece : plan.norm_pieces) {
    const std::vector<double> own = block_sums({flat.narrow(0, piece.start, piece.numel)});
    std::copy(own.begin(), own.end(), sums.begin() + piece.first_block);
  }
  all_reduce_sum(sums, stages);  // one stage's value and zeros: no rounding
  return norm_of(std::move(sums));
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
