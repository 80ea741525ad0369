// --objective dpo in a pipeline.
#include <filesystem>
#include <memory>
#include <optional>
#include <string>

#include "common/train/checkpoint/checkpoint.hpp"
#include "step8_pipeline_ga/objectives/dpo.hpp"
#include "step8_pipeline_ga/objectives/inference_model.hpp"
#include "step8_pipeline_ga/objectives/objective_options.hpp"
#include "step8_pipeline_ga/objectives/reference_cache.hpp"
#include "step8_pipeline_ga/objectives/step_objective.hpp"

namespace ladder {
namespace {

class Dpo {
 public:
  Dpo(const TrainOptions& options, const StagePlan& plan, const Mesh& mesh,
      const BatchStream& batches)
      : options_(options),
        plan_(plan),
        mesh_(mesh),
        batches_(batches),
        source_(checkpoint_in("--dpo-reference", own().reference.empty() ? options.output.init_from
                                                                         : own().reference)),
        reference_hash_(describe_checkpoint(source_).param_hash) {}

  const std::string& reference_hash() const { return reference_hash_; }

  void start(Run& run) {
    run.announce(batches_.training_data().description());  // tells how many pairs were cut
    const auto load = [&] {
      auto reference = std::make_unique<InferenceModel>(options_, plan_, mesh_);
      reference->load(source_, batches_.training_data().tokenizer());
      return reference;
    };
    if (own().cache.empty()) {
      reference_ = load();
    } else {
      cache_.emplace(options_, reference_hash_, batches_, load, mesh_, run);
    }
  }

  void prepare(Microbatches& batch, const BatchOrigin& origin) const {
    if (cache_) {
      for (std::int64_t i = 0; i < batch.size(); ++i)
        batch[i].second_model_output = cache_->log_probs(batch[i].samples, origin.is_validation);
    } else {
      reference_->forward(batch, [&](const at::Tensor& logits, std::int64_t i) {
        batch[i].second_model_output = answer_log_probs(logits, batch[i].targets);
      });
    }
  }

  at::Tensor loss_sum(const at::Tensor& logits, const Microbatch& microbatch) {
    return dpo_loss_sum(logits, microbatch, own(), &sums_);
  }
  Metrics take_metrics() { return dpo_metrics(take_sums(sums_, kNumDpoSums, mesh_.world)); }

 private:
  const DpoOptions& own() const { return options_.get<ObjectiveOptions>().dpo; }

  TrainOptions options_;
  StagePlan plan_;
  Mesh mesh_;
  const BatchStream& batches_;
  std::filesystem::path source_;  // the reference's checkpoint: a newer one does not replace it
  std::string reference_hash_;
  std::unique_ptr<InferenceModel> reference_;  // null if there is a cache
  std::optional<ReferenceCache> cache_;
  MetricSums sums_;
};

}  // namespace

StepObjective dpo_objective(const TrainOptions& options, const StagePlan& plan, const Mesh& mesh,
                            const BatchStream& batches) {
  const auto dpo = std::make_shared<Dpo>(options, plan, mesh, batches);
  const DpoMeanOver mean_over = options.get<ObjectiveOptions>().dpo.mean_over;
  StepObjective objective;
  objective.count = [mean_over](const Microbatches& batch) {
    return count_pairs(batch, mean_over);
  };
  objective.loss_sum = [dpo](const auto& logits, const auto& m) {
    return dpo->loss_sum(logits, m);
  };
  objective.start = [dpo](Run& run) { dpo->start(run); };
  objective.prepare = [dpo](auto& batch, const auto& origin) { dpo->prepare(batch, origin); };
  objective.take_metrics = [dpo] { return dpo->take_metrics(); };
  objective.state.reference_hash = dpo->reference_hash();
  return objective;
}

}  // namespace ladder
