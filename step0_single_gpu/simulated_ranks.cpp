#include "step0_single_gpu/simulated_ranks.hpp"

#include <ATen/ops/empty.h>

#include <bit>

#include "common/core/check.hpp"
#include "common/core/memory_ledger.hpp"
#include "common/core/tree_sum.hpp"

namespace ladder {

SimulatedRanks::SimulatedRanks(std::int64_t num_ranks, FlatGradients& grads)
    : num_ranks_(num_ranks), grads_(grads) {
  if (num_ranks == 1) return;
  const MemoryScope scope(MemoryCategory::kOther, "simulated ranks");
  waiting_ =
      at::empty({most_waiting_sums(num_ranks), grads.layout().numel}, grads.flat().options());
}

double SimulatedRanks::accumulate_gradients(const LossSum& loss_sum,
                                            const Microbatches& global_batch, double num_targets) {
  if (num_ranks_ == 1) return ladder::accumulate_gradients(loss_sum, global_batch, num_targets);
  // The sum that has been completed last is in `grads_`. It waits elsewhere while the next rank
  // computes.
  std::int64_t num_waiting = 0;
  const auto play = [&](int rank) {
    if (rank > 0) waiting_[num_waiting++].copy_(grads_.flat());
    grads_.zero();
    return ladder::accumulate_gradients(loss_sum, rows_of_rank(global_batch, rank, num_ranks_),
                                        num_targets);
  };
  const auto add = [&](double left, double right) {
    grads_.flat().add_(waiting_[--num_waiting]);
    return left + right;
  };
  return tree_sum(0, static_cast<int>(num_ranks_), play, add);
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

}  // namespace ladder
