// Step 0, with the launches of a microbatch recorded once and then repeated.
#include "step0_single_gpu/cuda_graphs/train.hpp"

#include "common/optim/norm.hpp"
#include "common/train/build_model.hpp"
#include "common/train/generate.hpp"
#include "common/train/run.hpp"
#include "step0_single_gpu/accumulate_gradients.hpp"
#include "step0_single_gpu/cuda_graphs/cuda_graphs.hpp"
#include "step0_single_gpu/evaluate.hpp"
#include "step0_single_gpu/objective.hpp"
#include "step0_single_gpu/simulated_ranks.hpp"

namespace ladder::cuda_graphs {

TrainReport train(const TrainOptions& options, Communicator& comm) {
  check_alone(comm.size());
  Run run(options, comm);
  FlatModel flat(layout_of(options));
  const Model model = build_model(options, flat);
  FlatGradients grads(flat);
  Optimizer optimizer(flat, grads, options.optimizer);
  const auto& oracle = options.get<OracleOptions>();
  SimulatedRanks ranks(oracle.simulate_ranks, grads);
  BatchStream batches = global_batches(options.data, oracle.simulate_ranks);
  run.resume(full_state(flat, optimizer, batches));
  const LossSum loss_sum = run.with_loss_scale(captured(loss_of(model, kNextToken), grads));

  while (run.next_step()) {
    const Microbatches batch = batches.next();
    const double num_targets = kNextToken.count(batch);
    const double loss = ranks.accumulate_gradients(loss_sum, batch, num_targets);
    const Clipping clip(gradient_norm(grads), options.clip_norm, run.loss_scale());
    if (run.decide_step(clip)) optimizer.step(run.learning_rate(), clip.factor);
    grads.zero();
    run.end_step({loss, clip.norm, parameter_norm(flat), num_targets, run.stop_requested()});
    if (run.should_save()) run.save(full_state(flat, optimizer, batches));
    if (run.should_evaluate()) run.record_validation(evaluate(loss_sum, batches.validation()));
  }
  run.finish(full_state(flat, optimizer, batches));
  if (run.should_sample()) run.record_sample(generate(model, options));
  return run.report();
}

}  // namespace ladder::cuda_graphs
