// Step 1: several ranks, and libtorch's Reducer sums their gradients.
//
// Every rank holds a replica: a complete copy of the model. All ranks fetch the same global batch,
// and each runs its own rows of it. The Reducer sums the gradients over the ranks; then all
// replicas take the same optimizer step.
#include "step1_ddp_reference/train.hpp"

#include "common/optim/norm.hpp"
#include "common/train/build_model.hpp"
#include "common/train/generate.hpp"
#include "common/train/run.hpp"
#include "common/train/same_start.hpp"
#include "step0_single_gpu/accumulate_gradients.hpp"
#include "step0_single_gpu/evaluate.hpp"
#include "step0_single_gpu/objective.hpp"
#include "step0_single_gpu/simulated_ranks.hpp"
#include "step1_ddp_reference/reference_ddp.hpp"

namespace ladder::step1 {

TrainReport train(const TrainOptions& options, Communicator& comm) {
  Run run(options, comm);
  FlatModel flat(layout_of(options));
  const Model model = build_model(options, flat);
  FlatGradients grads(flat);
  Optimizer optimizer(flat, grads, options.optimizer);
  ReferenceDdp ddp(flat, comm);
  BatchStream batches = global_batches(options.data, comm.size());
  run.resume(full_state(flat, optimizer, batches));
  check_same_start(run, batches, comm);  // otherwise ranks could wait for each other forever
  ddp.broadcast_parameters();            // replicas start equal
  const LossSum loss_sum = run.with_loss_scale(ddp.wrap(loss_of(model, kNextToken)));

  while (run.next_step()) {
    const Microbatches global_batch = batches.next();  // every rank reads the rows of all ranks
    const Microbatches batch =
        share_of_rank(global_batch, options.data.deal, comm.rank(), comm.size());
    const double num_targets = kNextToken.count(global_batch);
    ddp.arm(batch.size());  // the last microbatch's backward will reduce
    const double loss = accumulate_gradients(loss_sum, batch, num_targets);
    ddp.wait();  // all ranks now hold the same gradients, and from here on do the same with them
    const Clipping clip(gradient_norm(grads), options.clip_norm, run.loss_scale());
    if (run.decide_step(clip)) optimizer.step(run.learning_rate(), clip.factor);
    grads.zero();
    const StepSums sums = all_reduce_sum(StepSums{loss, run.stop_requested()}, comm);
    run.end_step({sums.loss, clip.norm, parameter_norm(flat), num_targets, sums.is_stop_requested});
    if (run.should_save()) run.save(full_state(flat, optimizer, batches));
    if (run.should_evaluate()) run.record_validation(evaluate(loss_sum, batches.validation()));
  }
  run.finish(full_state(flat, optimizer, batches));
  if (run.should_sample()) run.record_sample(generate(model, options));
  return run.report();
}

}  // namespace ladder::step1
