#include "tests/parity/straight_line_diloco.hpp"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/add.h>
#include <ATen/ops/zeros_like.h>

#include <algorithm>
#include <cstdlib>
#include <memory>

#include "common/comm/contract/rank_values.hpp"
#include "common/data/batch_stream.hpp"
#include "common/optim/loss_scaler.hpp"
#include "common/optim/norm.hpp"
#include "common/optim/optimizer.hpp"
#include "common/train/build_model.hpp"
#include "common/train/checkpoint/state_tensors.hpp"
#include "common/train/generate.hpp"
#include "step0_single_gpu/accumulate_gradients.hpp"
#include "step0_single_gpu/evaluate.hpp"
#include "step0_single_gpu/objective.hpp"
#include "step2_sharded_data/data_shard.hpp"
#include "step9_diloco/diloco_options.hpp"

namespace ladder {
namespace {

struct Worker {
  Worker(const TrainOptions& options, const FlatLayout& layout, int index, int num_workers)
      : flat(layout),
        model(build_model(options, flat)),
        grads(flat),
        inner(flat, grads, options.optimizer),
        batches(options.data, data_shard(index, num_workers, options.data.tail)),
        loss_sum(loss_of(model, kNextToken)),
        scaler(needs_loss_scale(options) ? LossScaler(options.loss_scale) : LossScaler()) {}

  // What its optimizer updates: in 16 bits the masters.
  FlatModel local() const { return inner.updated_model(flat); }

  FlatModel flat;
  Model model;
  FlatGradients grads;
  Optimizer inner;
  BatchStream batches;
  LossSum loss_sum;
  LossScaler scaler;  // its own: workers do not talk between rounds
};

// Where fragment k of n begins: at the tensor whose start is nearest to k/n of the model.
std::int64_t start_of(std::int64_t k, std::int64_t n, const FlatLayout& layout) {
  if (k == n) return layout.numel;
  std::int64_t nearest = 0;
  for (const FlatTensor& tensor : layout.tensors) {
    const std::int64_t goal = layout.numel * k / n;
    if (std::abs(tensor.start - goal) <= std::abs(nearest - goal)) nearest = tensor.start;
  }
  return nearest;
}

std::string hash_of(const FlatModel& model) {
  return tensor_hash(whole_tensors(model.named_params()));
}

}  // namespace

StraightLine straight_line_diloco(const TrainOptions& options, int num_workers) {
  const DilocoOptions& o = options.get<DilocoOptions>();
  StraightLine result;
  std::vector<std::unique_ptr<Worker>> workers;
  for (int w = 0; w < num_workers; ++w)
    workers.push_back(std::make_unique<Worker>(options, layout_of(options), w, num_workers));
  // It never trains, and is fp32.
  Worker global(in_fp32(options), in_fp32(layout_of(options)), 0, 1);
  for (const auto& worker : workers) {
    worker->local().params().copy_(global.flat.params());
    worker->inner.copy_masters_to_params();
  }
  const FlatLayout& layout = global.flat.layout();
  const at::Tensor momentum = at::zeros_like(global.flat.params());
  std::int64_t in_round = 0, outer_step = 0;
  at::Tensor average;
  for (std::int64_t step = 0; step < options.num_steps; ++step) {
    std::vector<double> loss_sums;
    double num_targets = 0;
    for (const auto& worker : workers) {
      const Microbatches batch = worker->batches.next();
      const double own_targets = kNextToken.count(batch);
      const double scale = worker->scaler.scale();
      const std::int64_t taken = step - worker->scaler.state().skipped_steps;
      const LossSum own_loss_sum = worker->scaler.applied_to(worker->loss_sum);
      const double loss = accumulate_gradients(own_loss_sum, batch, own_targets);
      const Clipping clip(gradient_norm(worker->grads), options.clip_norm, scale);
      if (worker->scaler.accepts(clip.norm))
        worker->inner.step(learning_rate(options.lr, taken, options.num_steps), clip.factor);
      worker->grads.zero();
      loss_sums.push_back(loss * own_targets);
      num_targets += own_targets;
    }
    const double loss_sum =
        wanted_tree(0, num_workers, [&](int w) { return loss_sums[static_cast<std::size_t>(w)]; });
    result.losses.push_back(loss_sum / std::max(num_targets, 1.0));

    const at::NoGradGuard no_grad;
    const std::int64_t fragment = outer_step % o.num_fragments;
    const std::int64_t start = start_of(fragment, o.num_fragments, layout);
    const std::int64_t end = start_of(fragment + 1, o.num_fragments, layout);
    const at::Tensor p = global.flat.params().slice(0, start, end);
    ++in_round;
    if (in_round == o.sync_every / o.num_fragments - o.sync_delay) {
      const auto difference = [&](int w) -> at::Tensor {
        return p - workers[static_cast<std::size_t>(w)]->local().params().slice(0, start, end);
      };
      average = wanted_tree(0, num_workers, difference) / num_workers;
    }
    if (in_round == o.sync_every / o.num_fragments) {
      const at::Tensor v = momentum.slice(0, start, end);
      v.copy_(at::add(v * o.outer_momentum, average));
      p.copy_(at::add(p, at::add(average, v, o.outer_momentum), -o.outer_lr));
      for (const auto& worker : workers) {
        const at::Tensor local = worker->local().params().slice(0, start, end);
        if (o.alpha < 1) local.copy_(at::add(local * o.alpha, p, 1 - o.alpha));
        worker->inner.copy_masters_to_params();
      }
      in_round = 0;
      ++outer_step;
    }
    result.global_hashes.push_back(hash_of(global.flat));
    if ((step + 1) % options.output.eval_every == 0)
      result.val_losses.push_back(evaluate(global.loss_sum, global.batches.validation()));
  }
  result.sample = generate(global.model, options);
  for (const auto& worker : workers) result.parameter_hashes.push_back(hash_of(worker->local()));
  return result;
}

}  // namespace ladder
