#include "tests/parity/planted_errors.hpp"

#include "common/core/check.hpp"
#include "common/model/gpt.hpp"
#include "common/optim/norm.hpp"
#include "common/train/build_model.hpp"
#include "common/train/run.hpp"
#include "common/train/step_sums.hpp"
#include "step0_single_gpu/accumulate_gradients.hpp"
#include "step0_single_gpu/objective.hpp"
#include "step2_sharded_data/data_shard.hpp"
#include "step2_sharded_data/sharded_evaluate.hpp"
#include "step3_naive_dp/naive_dp.hpp"
#include "step4_bucketed_ddp/bucket_options.hpp"
#include "step4_bucketed_ddp/bucket_plan.hpp"

namespace ladder {
namespace {

class WrongReduction {
 public:
  WrongReduction(PlantedError error, FlatModel& flat, FlatGradients& grads,
                 const TrainOptions& options, Communicator& comm)
      : error_(error),
        flat_(flat),
        grads_(grads),
        comm_(comm),
        plan_(plan_buckets(flat.layout(), bucket_capacity_bytes(options))) {}

  double accumulate_and_reduce(const LossSum& loss_sum, const Microbatches& batch,
                               double num_targets) {
    if (error_ == PlantedError::kReducesLastMicrobatchOnly) {
      return last_microbatch_only(loss_sum, batch, num_targets);
    }
    const double loss = accumulate_gradients(loss_sum, batch, num_targets);
    if (error_ == PlantedError::kReducesParameters) return loss;  // reduced later
    for (std::size_t i = 0; i < plan_.size(); ++i) {
      const bool is_skipped = error_ == PlantedError::kSkippedBucket && i == plan_.size() / 2;
      if (!is_skipped) sum(grads_.flat().narrow(0, plan_[i].start, plan_[i].numel));
    }
    if (error_ == PlantedError::kMeanOfGradients) grads_.flat().div_(comm_.size());
    return loss;
  }

  void after_step() {
    if (error_ != PlantedError::kReducesParameters) return;
    sum(flat_.params());
    flat_.params().div_(comm_.size());
  }

 private:
  void sum(const at::Tensor& tensor) { comm_.all_reduce(tensor)->wait(); }

  double last_microbatch_only(const LossSum& loss_sum, const Microbatches& batch,
                              double num_targets) {
    std::vector<Microbatch> first(batch.begin(), batch.end()), last = {first.back()};
    first.pop_back();
    double loss = accumulate_gradients(loss_sum, Microbatches(std::move(first)), num_targets);
    const at::Tensor own = grads_.flat().clone();
    grads_.zero();
    loss += accumulate_gradients(loss_sum, Microbatches(std::move(last)), num_targets);
    sum(grads_.flat());
    grads_.flat().add_(own);
    return loss;
  }

  PlantedError error_;
  FlatModel& flat_;
  FlatGradients& grads_;
  Communicator& comm_;
  std::vector<GradientBucket> plan_;
};

}  // namespace

const char* to_string(PlantedError error) {
  switch (error) {
    case PlantedError::kNone:
      return "no error";
    case PlantedError::kMeanOfGradients:
      return "mean of the gradients instead of their sum";
    case PlantedError::kSkippedBucket:
      return "a skipped bucket";
    case PlantedError::kAnotherRanksData:
      return "a rank that reads another's data";
    case PlantedError::kNoBroadcast:
      return "no broadcast";
    case PlantedError::kReducesParameters:
      return "parameters reduced instead of gradients";
    case PlantedError::kReducesLastMicrobatchOnly:
      return "only the last microbatch reduced";
    case PlantedError::kOwnDenominator:
      return "each rank's own number of targets as the denominator";
  }
  throw CheckError(concat("no such error: ", static_cast<int>(error)));
}

const std::vector<PlantedError>& planted_errors() {
  static const std::vector<PlantedError> all = {
      PlantedError::kMeanOfGradients,   PlantedError::kSkippedBucket,
      PlantedError::kAnotherRanksData,  PlantedError::kNoBroadcast,
      PlantedError::kReducesParameters, PlantedError::kReducesLastMicrobatchOnly,
      PlantedError::kOwnDenominator};
  return all;
}

TrainReport train_with(PlantedError error, const TrainOptions& options, World& world) {
  Communicator& comm = world.comm();
  Run run(options, comm);
  FlatModel flat(layout_of(options));
  const std::uint64_t own_seed = options.seed + static_cast<std::uint64_t>(comm.rank());
  const Model model = build_gpt(options.model, own_seed, [&](const Unit& unit) { flat.add(unit); });
  FlatGradients grads(flat);
  Optimizer optimizer(flat, grads, options.optimizer);
  const bool reads_rank_0 = error == PlantedError::kAnotherRanksData && comm.rank() == 1;
  BatchStream batches(options.data,
                      data_shard(reads_rank_0 ? 0 : comm.rank(), comm.size(), options.data.tail));
  run.resume(full_state(flat, optimizer, batches));
  if (error != PlantedError::kNoBroadcast) broadcast_parameters(flat, comm);
  WrongReduction reduction(error, flat, grads, options, comm);
  const LossSum loss_sum = loss_of(model, kNextToken);

  while (run.next_step()) {
    const Microbatches batch = batches.next();
    const double num_targets = all_reduce_sum(batch.num_targets(), comm);
    const bool has_own = error == PlantedError::kOwnDenominator;
    const double loss = reduction.accumulate_and_reduce(
        loss_sum, batch, has_own ? batch.num_targets() * comm.size() : num_targets);
    const Clipping clip(gradient_norm(grads), options.clip_norm);
    optimizer.step(run.learning_rate(), clip.factor);
    reduction.after_step();
    grads.zero();
    const StepSums sums = all_reduce_sum(StepSums{loss, run.stop_requested()}, comm);
    run.record({sums.loss, clip.norm, parameter_norm(flat), num_targets, sums.is_stop_requested});
    if (run.should_evaluate()) {
      run.record_validation(evaluate(loss_sum, batches.validation(), comm));
    }
  }
  run.finish(full_state(flat, optimizer, batches));
  return run.report();
}

}  // namespace ladder
