#include "step0_single_gpu/simulated_ranks.hpp"

#include <ATen/ops/zeros_like.h>

#include "common/core/check.hpp"
#include "common/core/memory_ledger.hpp"

namespace ladder {

SimulatedRanks::SimulatedRanks(std::int64_t num_ranks, FlatGradients& grads)
    : num_ranks_(num_ranks), grads_(grads) {
  if (num_ranks == 1) return;
  const MemoryScope scope(MemoryCategory::kOther, "simulated ranks");
  sum_over_ranks_ = at::zeros_like(grads.flat());
}

double SimulatedRanks::accumulate_gradients(const LossSum& loss_sum,
                                            const Microbatches& global_batch, double num_targets) {
  if (num_ranks_ == 1) return ladder::accumulate_gradients(loss_sum, global_batch, num_targets);
  double loss = 0;
  for (std::int64_t rank = 0; rank < num_ranks_; ++rank) {
    grads_.zero();
    loss += ladder::accumulate_gradients(loss_sum, rows_of_rank(global_batch, rank, num_ranks_),
                                         num_targets);
    rank == 0 ? sum_over_ranks_.copy_(grads_.flat()) : sum_over_ranks_.add_(grads_.flat());
  }
  grads_.flat().copy_(sum_over_ranks_);
  return loss;
}

BatchStream global_batches(const DataOptions& options, std::int64_t num_ranks) {
  if (options.deal == Deal::kSamples)
    return BatchStream(options, whole_data(options.tail, num_ranks));
  DataOptions all = options;
  if (all.step_microbatches == 0) all.step_microbatches = num_ranks * options.num_microbatches;
  return BatchStream(all, whole_data(Tail::kDrop));
}

Microbatch rows_of_rank(const Microbatch& global, std::int64_t rank, std::int64_t num_ranks) {
  const auto rows = [&](const at::Tensor& tensor) {
    return tensor.slice(/*dim=*/0, rank, std::nullopt, num_ranks).contiguous();
  };
  const at::Tensor targets = rows(global.targets);
  return {rows(global.tokens), targets, targets.ne(kIgnoredTarget).sum().item<std::int64_t>()};
}

Microbatches rows_of_rank(const Microbatches& global, std::int64_t rank, std::int64_t num_ranks) {
  std::vector<Microbatch> rows;
  for (const Microbatch& microbatch : global) {
    rows.push_back(rows_of_rank(microbatch, rank, num_ranks));
  }
  return Microbatches(std::move(rows));
}

Microbatches share_of_rank(const Microbatches& global, Deal deal, int rank, int num_ranks) {
  if (deal == Deal::kSamples) return rows_of_rank(global, rank, num_ranks);
  std::vector<Microbatch> own;
  for (std::int64_t i = rank; std::ssize(own) * num_ranks < global.size(); i += num_ranks)
    own.push_back(i < global.size() ? global[i] : no_targets(global[0].tokens.size(1)));
  return Microbatches(std::move(own));
}

void check_alone(int world_size) {
  check_usage(world_size == 1, "step 0 runs on one rank, not on ", world_size,
              "; --simulate-ranks ", world_size, " plays them in one process");
}

}  // namespace ladder
