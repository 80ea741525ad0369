// Step 0: the training loop that every later step keeps.
//
// Read it once from top to bottom. Each later step is this page with a few lines changed, and the
// order stays: fetch a batch, differentiate, (reduce), clip, step, zero, record.
#include "step0_single_gpu/train.hpp"

#include "common/optim/norm.hpp"
#include "common/train/build_model.hpp"
#include "common/train/generate.hpp"
#include "common/train/run.hpp"
#include "step0_single_gpu/accumulate_gradients.hpp"
#include "step0_single_gpu/evaluate.hpp"
#include "step0_single_gpu/objective.hpp"
#include "step0_single_gpu/simulated_ranks.hpp"

namespace ladder::step0 {

TrainReport train(const TrainOptions& options, Communicator& comm) {
  check_alone(comm.size());
  Run run(options, comm);              // log, metrics, signals, folders: plumbing
  FlatModel flat(layout_of(options));  // all parameters in one buffer, all gradients in another
  const Model model = build_model(options, flat);
  FlatGradients grads(flat);
  Optimizer optimizer(flat, grads, options.optimizer);
  const auto& oracle = options.get<OracleOptions>();
  SimulatedRanks ranks(oracle.simulate_ranks, grads);  // 1, or N for the oracle
  BatchStream batches = global_batches(options.data, oracle.simulate_ranks);
  run.resume(full_state(flat, optimizer, batches));
  const LossSum loss_sum = run.with_loss_scale(loss_of(model, kNextToken));  // 1, except in fp16

  while (run.next_step()) {
    const Microbatches batch = batches.next();  // token ids for all microbatches of the step
    const double num_targets = kNextToken.count(batch);  // the one denominator, before any forward
    const double loss = ranks.accumulate_gradients(loss_sum, batch, num_targets);
    const Clipping clip(gradient_norm(grads), options.clip_norm, run.loss_scale());
    if (run.decide_step(clip)) optimizer.step(run.learning_rate(), clip.factor);  // or skip it
    grads.zero();  // in place: the next step reuses these 4 bytes per parameter
    run.end_step({loss, clip.norm, parameter_norm(flat), num_targets, run.stop_requested()});
    if (run.should_save()) run.save(full_state(flat, optimizer, batches));
    if (run.should_evaluate()) run.record_validation(evaluate(loss_sum, batches.validation()));
  }
  run.finish(full_state(flat, optimizer, batches));
  if (run.should_sample()) run.record_sample(generate(model, options));
  return run.report();
}

}  // namespace ladder::step0
