// --objective self_distillation in a pipeline.
#include <ATen/core/grad_mode.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/stack.h>

#include <memory>
#include <vector>

#include "common/core/memory_ledger.hpp"
#include "step8_pipeline_ga/objectives/inference_model.hpp"
#include "step8_pipeline_ga/objectives/objective_options.hpp"
#include "step8_pipeline_ga/objectives/self_distillation.hpp"
#include "step8_pipeline_ga/objectives/step_objective.hpp"

namespace ladder {
namespace {

class SelfDistillation {
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
  }

  const at::Tensor& weights() const { return weights_; }

  void start(bool is_new) {
    const at::NoGradGuard no_grad;
    optimizer_.start_masters();
    if (is_new) weights_.copy_(student_.params());
    teacher_.params().copy_(weights_);
  }

  void prepare(Microbatches& batch, const BatchOrigin& origin) {
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

  void after_step() {
    const at::NoGradGuard no_grad;
    weights_.mul_(own().teacher_momentum);
    weights_.add_(student_.params(), 1 - own().teacher_momentum);
    teacher_.params().copy_(weights_);
  }

  at::Tensor loss_sum(const at::Tensor& logits, const Microbatch& microbatch) {
    return distillation_loss_sum(logits, microbatch, own(), &sums_);
  }
  Metrics take_metrics() {
    const auto size = static_cast<std::size_t>(1 + own().prototypes);
    return distillation_metrics(take_sums(sums_, size, mesh_.world));
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
      const std::int64_t count = batch[i].tokens.size(0) / 2;
      batch[i].second_model_output =
          balanced.select(1, mesh_.dp_rank()).narrow(1, first, count).flatten(0, 1);
      first += count;
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

StepObjective distillation_objective(const TrainOptions& options, const StagePlan& plan,
                                     const Mesh& mesh, const FlatModel& student,
                                     Optimizer& optimizer) {
  const auto own = std::make_shared<SelfDistillation>(options, plan, mesh, student, optimizer);
  StepObjective objective;
  objective.count = count_samples;
  objective.loss_sum = [own](const auto& logits, const auto& m) {
    return own->loss_sum(logits, m);
  };
  objective.start = [own](Run& run) { own->start(run.num_steps_taken() == 0); };
  objective.prepare = [own](auto& batch, const auto& origin) { own->prepare(batch, origin); };
  objective.after_step = [own] { own->after_step(); };
  objective.take_metrics = [own] { return own->take_metrics(); };
  objective.state.tensors = {{"teacher", own->weights()}};
  return objective;
}

}  // namespace ladder
