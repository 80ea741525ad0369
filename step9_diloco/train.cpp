// Step 9: workers train alone, and meet once in a while.
#include "step9_diloco/train.hpp"

#include <algorithm>

#include "common/optim/norm.hpp"
#include "common/train/generate.hpp"
#include "common/train/run.hpp"
#include "common/train/same_start.hpp"
#include "step0_single_gpu/accumulate_gradients.hpp"
#include "step0_single_gpu/objective.hpp"
#include "step2_sharded_data/data_shard.hpp"
#include "step2_sharded_data/sharded_evaluate.hpp"
#include "step3_naive_dp/naive_dp.hpp"
#include "step4_bucketed_ddp/gradient_hooks.hpp"
#include "step9_diloco/compressed_averager.hpp"
#include "step9_diloco/diloco.hpp"
#include "step9_diloco/diloco_options.hpp"
#include "step9_diloco/diloco_plan.hpp"
#include "step9_diloco/diloco_state.hpp"
#include "step9_diloco/round_log.hpp"

namespace ladder::step9 {

TrainReport train(const TrainOptions& options, Communicator& comm) {
  Run run(options, comm);
  ModelCopy own(options, layout_of(options));                      // this worker's
  ModelCopy global(in_fp32(options), in_fp32(own.flat.layout()));  // everybody's
  FlatGradients grads(own.flat);
  Optimizer inner(own.flat, grads, options.optimizer);
  FlatModel local = inner.updated_model(own.flat);  // in 16 bits its masters, else own.flat itself
  BatchStream batches(options.data, data_shard(comm.rank(), comm.size(), options.data));
  const auto& rounds = options.get<DilocoOptions>();
  const std::unique_ptr<Averager> averager = make_averager(options, comm);
  Diloco diloco(local, global.flat, rounds, *averager);  // with the outer optimizer
  const auto state = [&] { return diloco_state(diloco, own, global, inner, batches, run, comm); };
  run.resume(state());
  check_same_start(run, batches, comm);
  broadcast_parameters(global.flat, comm);
  diloco.adopt_global();
  inner.copy_masters_to_params();
  RoundLog log;
  const GradientHooks hooks(own.flat.leaves(), [&](auto) { averager->poll(); });  // it moves on

  while (run.next_step()) {
    const Microbatches batch = batches.next();
    const double num_targets = kNextToken.count(batch);  // this worker's: nobody else is asked
    const double loss = accumulate_gradients(run.with_loss_scale(own.loss_sum), batch, num_targets);
    const Clipping clip(gradient_norm(grads), options.clip_norm, run.loss_scale());
    if (run.decide_step(clip)) inner.step(run.learning_rate(), clip.factor);
    grads.zero();
    const DilocoAction due = plan_diloco(rounds, run.num_steps_taken() + 1);
    if (due.starts) diloco.start_average();
    if (due.finishes) diloco.finish_round();
    if (due.starts || due.finishes) inner.copy_masters_to_params();
    log.add({loss, clip.norm, parameter_norm(own.flat), num_targets});
    run.end_step();
    if (run.should_save()) diloco.settle();  // what is in flight is saved, too
    const bool is_heard = due.finishes || run.should_save() || comm.size() == 1;
    if (is_heard) run.record(log.share(run.stop_requested(), comm));
    if (run.should_save()) run.save(state());
    if (run.should_evaluate()) {
      run.record_validation(evaluate(global.loss_sum, batches.validation(), comm));
    }
  }
  diloco.settle();
  run.finish(state());
  if (run.should_sample()) run.record_sample(generate(global.model, options));
  return run.report();
}

}  // namespace ladder::step9
