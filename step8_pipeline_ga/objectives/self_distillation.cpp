#include "step8_pipeline_ga/objectives/self_distillation.hpp"

#include <ATen/Functions.h>
#include <ATen/core/grad_mode.h>

#include <cmath>
#include <limits>
#include <span>
#include <vector>

#include "common/core/check.hpp"
#include "common/core/cuda_device.hpp"
#include "common/core/memory_ledger.hpp"
#include "common/core/seed.hpp"
#include "common/core/torch_types.hpp"
#include "step8_pipeline_ga/objectives/inference_model.hpp"
#include "step8_pipeline_ga/pipeline_options.hpp"

namespace ladder {

void make_views(Microbatch& microbatch, std::uint64_t seed, std::int64_t epoch, double noise,
                std::int64_t vocab_size) {
  const std::int64_t num_samples = microbatch.tokens.size(0), context = microbatch.tokens.size(1);
  check(num_samples == static_cast<std::int64_t>(microbatch.samples.size()),
        "views need to know the samples of ", num_samples, " rows, there are ",
        microbatch.samples.size());
  microbatch.tokens = microbatch.tokens.repeat({2, 1});
  microbatch.targets = microbatch.targets.repeat({2, 1});
  microbatch.num_targets *= 2;
  auto* token = microbatch.tokens.mutable_data_ptr<std::int64_t>();
  for (const int view : {1, 2}) {
    for (const std::int64_t sample : microbatch.samples) {
      Random random(
          derive_seed(seed, concat("epoch ", epoch, ", sample ", sample, ", view ", view)));
      for (std::int64_t t = 0; t < context; ++t, ++token)
        if (random.uniform() < noise) *token = random.below(vocab_size);
    }
  }
}

at::Tensor prototype_scores(const at::Tensor& logits, const at::Tensor& targets,
                            std::int64_t num_prototypes) {
  const at::Tensor outputs = widened(logits.narrow(2, 0, num_prototypes));
  const at::Tensor is_real = (targets != kIgnoredTarget).to(outputs.options());  // [R, T]
  const at::Tensor sums = (outputs * is_real.unsqueeze(2)).sum(1);               // [R, K]
  return sums / is_real.sum(1, /*keepdim=*/true).clamp_min(1);
}

at::Tensor teacher_scores(const at::Tensor& logits, const at::Tensor& targets,
                          std::int64_t num_prototypes) {
  const at::Tensor scores = prototype_scores(logits, targets, num_prototypes);
  return scores.masked_fill(to_device(targets == kIgnoredTarget, scores.device()).all(1, true),
                            -std::numeric_limits<double>::infinity());
}

std::int64_t count_samples(const Microbatches& batch) {
  std::int64_t count = 0;
  for (const Microbatch& m : batch) {
    const auto num_samples = static_cast<std::int64_t>(m.samples.size());
    const at::Tensor is_target = m.targets.narrow(0, 0, num_samples) != kIgnoredTarget;
    count += is_target.any(1).sum().item<std::int64_t>();
  }
  return count;
}

at::Tensor balanced_assignment(const at::Tensor& scores, double temperature, int iterations) {
  check(scores.dim() == 2 && scores.numel() > 0, "an assignment needs scores [samples, prototypes]",
        ", got ", scores.sizes());
  const at::Tensor is_left_out = scores.select(1, 0) == -std::numeric_limits<double>::infinity();
  const at::Tensor others = (~is_left_out).nonzero().flatten();
  if (others.size(0) < scores.size(0)) {
    const at::Tensor shares = at::zeros_like(scores);
    if (others.size(0) == 0) return shares;
    return shares.index_copy_(
        0, others, balanced_assignment(scores.index_select(0, others), temperature, iterations));
  }
  // Logarithms: at a low temperature the shares themselves would underflow, down to 0 / 0.
  at::Tensor log_shares = scores.to(at::kDouble) / temperature;
  for (int i = 0; i < iterations; ++i) {
    log_shares = log_shares.log_softmax(0);  // the prototypes get equal sums
    log_shares = log_shares.log_softmax(1);  // and each sample adds up to 1
  }
  return log_shares.exp().to(scores.scalar_type());
}

at::Tensor distillation_losses(const at::Tensor& student, const at::Tensor& assignment,
                               double temperature) {
  const at::Tensor log_probs = (student / temperature).log_softmax(1);
  const at::Tensor of_other_view = assignment.roll(assignment.size(0) / 2, 0);
  return -(of_other_view * log_probs).sum(1).view({2, -1}).mean(0);
}

at::Tensor distillation_loss_sum(const at::Tensor& logits, const Microbatch& microbatch,
                                 const DistillationOptions& options, MetricSums* sums) {
  const at::Tensor scores = prototype_scores(logits, microbatch.targets, options.prototypes);
  if (sums != nullptr) {  // Σ entropy, then Σ probability of each prototype
    const at::Tensor is_counted = (microbatch.targets != kIgnoredTarget).any(1, true);
    const at::Tensor p =
        (scores.detach().to(at::kDouble) / options.student_temperature).softmax(1) *
        to_device(is_counted, scores.device());
    const at::Tensor total = p.sum(0).cpu();
    sums->resize(static_cast<std::size_t>(1 + options.prototypes));
    (*sums)[0] -= at::xlogy(p, p).sum().item<double>();
    for (std::int64_t k = 0; k < options.prototypes; ++k)
      (*sums)[static_cast<std::size_t>(1 + k)] += total.const_data_ptr<double>()[k];
  }
  return distillation_losses(scores, microbatch.second_model_output, options.student_temperature)
      .sum();
}

Metrics distillation_metrics(const MetricSums& sums) {
  double num_rows = 0, entropy = 0;
  for (std::size_t k = 1; k < sums.size(); ++k) num_rows += sums[k];
  for (std::size_t k = 1; k < sums.size(); ++k) {
    const double p = sums[k] / num_rows;
    if (p > 0) entropy -= p * std::log(p);
  }
  return {{"assignment_entropy", entropy}, {"sample_entropy", sums[0] / num_rows}};
}

// ---- in a pipeline ----

DataShard without_lone_samples(DataShard shard, const TrainOptions& options, int num_replicas) {
  if (options.get<ObjectiveOptions>().distillation.scope == SinkhornScope::kBatch) {
    check_usage(options.data.microbatch_size > 1 || microbatches_per_step(options) > 1 ||
                    num_replicas > 1 || options.get<PipelineOptions>().docs_per_step > 0,
                "--sinkhorn-scope batch: a step has one sample, and balanced alone it teaches "
                "nothing; take --micro-batch-size or --num-microbatches 2 or more");
    return shard;
  }
  const auto rows = static_cast<std::size_t>(options.data.microbatch_size);
  shard.select = [rows, select = shard.select](std::span<const std::int64_t> order,
                                               std::int64_t position) {
    std::vector<std::int64_t> samples = select(order, position);
    check_usage(position > 0 || samples.size() != 1,
                "--sinkhorn-scope microbatch: the data have one sample for each replica, and "
                "balanced alone it teaches nothing; take more data, fewer replicas, or "
                "--sinkhorn-scope batch");
    if (samples.size() % rows == 1) samples.pop_back();
    return samples;
  };
  return shard;
}

namespace {

class SelfDistillation final : public StepObjective {
 public:
  SelfDistillation(const TrainOptions& options, const StagePlan& plan, const Mesh& mesh,
                   const FlatModel& student, Optimizer& optimizer)
      : options_(options),
        mesh_(mesh),
        optimizer_(optimizer),
        student_(optimizer.updated_model(student)),
        teacher_(options, plan, mesh) {
    const MemoryScope scope(MemoryCategory::kParameters);
    weights_ = teacher_.params().to(at::kFloat);
    state.tensors = {{"teacher", weights_}};
    count = count_samples;
    loss_sum = [this](const at::Tensor& logits, const Microbatch& microbatch) {
      return distillation_loss_sum(logits, microbatch, own(), &sums_);
    };
  }

  DataShard shard(const DataShard& of_replica) const override {
    return without_lone_samples(of_replica, options_, mesh_.num_replicas());
  }

  void start(Run& run, const BatchStream& /*batches*/) override {
    const at::NoGradGuard no_grad;
    optimizer_.start_masters();
    if (run.num_steps_taken() == 0) weights_.copy_(student_.params());
    teacher_.params().copy_(weights_);
  }

  void prepare(Microbatches& batch, const BatchOrigin& origin) override {
    for (std::int64_t i = 0; i < batch.size(); ++i) {
      make_views(batch[i], options_.data.seed, origin.epoch, own().view_noise,
                 options_.model.vocab_size);
    }
    std::vector<at::Tensor> scores;  // [2B, K] of each microbatch, on the last stage
    teacher_.forward(batch, [&](const at::Tensor& logits, std::int64_t i) {
      scores.push_back(teacher_scores(logits, batch[i].targets, own().prototypes));
    });
    if (scores.empty()) return;
    // A validation microbatch is always balanced by itself: replicas need not have as many.
    if (own().scope == SinkhornScope::kBatch && !origin.is_validation) {
      balance_batch(batch, scores);
    } else {
      for (std::int64_t i = 0; i < batch.size(); ++i)
        batch[i].second_model_output = balance_views(scores[static_cast<std::size_t>(i)]);
    }
  }

  void after_step() override {
    const at::NoGradGuard no_grad;
    weights_.mul_(own().teacher_momentum);
    weights_.add_(student_.params(), 1 - own().teacher_momentum);
    teacher_.params().copy_(weights_);
  }

  Metrics take_metrics() override {
    const auto size = static_cast<std::size_t>(1 + own().prototypes);
    return distillation_metrics(take_sums(sums_, size, mesh_));
  }

 private:
  const DistillationOptions& own() const { return options_.get<ObjectiveOptions>().distillation; }

  // Each of the two views by itself: [2B, K] -> [2B, K].
  at::Tensor balance_views(const at::Tensor& scores) const {
    std::vector<at::Tensor> views;
    for (const at::Tensor& view : scores.chunk(2))
      views.push_back(balanced_assignment(view, own().teacher_temperature));
    return at::cat(views);
  }

  // Over all samples of the optimizer step, on all replicas. Every replica has as many.
  void balance_batch(Microbatches& batch, const std::vector<at::Tensor>& scores) {
    std::vector<at::Tensor> views[2];
    for (const at::Tensor& of_microbatch : scores) {
      const std::vector<at::Tensor> halves = of_microbatch.chunk(2);
      for (const int view : {0, 1}) views[view].push_back(halves[static_cast<std::size_t>(view)]);
    }
    const at::Tensor own_scores = at::stack({at::cat(views[0]), at::cat(views[1])});  // [2, n, K]
    const int num_replicas = mesh_.num_replicas();
    const std::int64_t num_samples = own_scores.size(1);
    const at::Tensor all =
        at::empty({num_replicas, 2, num_samples, own().prototypes}, own_scores.options());
    mesh_.data_parallel.all_gather(own_scores, all)->wait();
    const at::Tensor rows = all.transpose(0, 1).reshape({-1, own().prototypes});  // by view
    const at::Tensor balanced = balance_views(rows).view({2, num_replicas, num_samples, -1});
    std::int64_t first = 0;
    for (std::int64_t i = 0; i < batch.size(); ++i) {
      const std::int64_t size = batch[i].tokens.size(0) / 2;
      batch[i].second_model_output =
          balanced.select(1, mesh_.dp_rank()).narrow(1, first, size).flatten(0, 1);
      first += size;
    }
  }

  TrainOptions options_;
  Mesh mesh_;
  Optimizer& optimizer_;  // of the student
  FlatModel student_;     // in fp32: its masters, or itself
  InferenceModel teacher_;
  at::Tensor weights_;  // the teacher's masters: in fp32 its parameters themselves
  MetricSums sums_;
};

}  // namespace

std::unique_ptr<StepObjective> make_self_distillation(const TrainOptions& options,
                                                      const StagePlan& plan, const Mesh& mesh,
                                                      const FlatModel& student,
                                                      Optimizer& optimizer) {
  return std::make_unique<SelfDistillation>(options, plan, mesh, student, optimizer);
}

}  // namespace ladder
