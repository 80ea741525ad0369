// Workers that may die: each round is taken with whoever is there.
#include "step9_diloco/elastic/train.hpp"

#include <algorithm>

#include "common/optim/norm.hpp"
#include "common/train/generate.hpp"
#include "common/train/run.hpp"
#include "step0_single_gpu/accumulate_gradients.hpp"
#include "step0_single_gpu/objective.hpp"
#include "step2_sharded_data/sharded_evaluate.hpp"
#include "step9_diloco/diloco.hpp"
#include "step9_diloco/diloco_options.hpp"
#include "step9_diloco/diloco_plan.hpp"
#include "step9_diloco/diloco_state.hpp"
#include "step9_diloco/elastic/elastic_averager.hpp"
#include "step9_diloco/elastic/elastic_options.hpp"
#include "step9_diloco/elastic/worker.hpp"
#include "step9_diloco/round_log.hpp"

namespace ladder::elastic {

TrainReport train(const TrainOptions& options, Communicator& comm) {
  check_alone(comm.size());
  Run run(options, comm);
  ModelCopy own(options, layout_of(options));                      // this worker's
  ModelCopy global(in_fp32(options), in_fp32(own.flat.layout()));  // everybody's
  FlatGradients grads(own.flat);
  Optimizer inner(own.flat, grads, options.optimizer);
  FlatModel local = inner.updated_model(own.flat);  // in 16 bits its masters, else own.flat itself
  const auto& rounds = options.get<DilocoOptions>();
  BatchStream batches(options.data, worker_shard(options));
  ElasticAverager workers(options.get<ElasticOptions>(), worker_log(options));
  Diloco diloco(local, global.flat, rounds, workers);  // with the outer optimizer
  const auto state = [&] {
    return with_last_quorum(diloco_state(diloco, own, global, inner, batches, run, comm), workers);
  };
  run.resume(state());
  diloco.adopt_global();
  inner.copy_masters_to_params();
  workers.join(worker_state(diloco, local, global.flat, inner, run, options),
               group_settings(options, batches));
  RoundLog log;

  while (run.next_step()) {
    const Microbatches batch = batches.next();
    const double num_targets = kNextToken.count(batch);  // this worker's: nobody else is asked
    const double loss = accumulate_gradients(run.with_loss_scale(own.loss_sum), batch, num_targets);
    const Clipping clip(gradient_norm(grads), options.clip_norm, run.loss_scale());
    if (run.decide_step(clip)) inner.step(run.learning_rate(), clip.factor);
    grads.zero();
    workers.note_step();
    const DilocoAction due = plan_diloco(rounds, run.num_steps_taken() + 1);
    if (due.starts || due.finishes) start_round(diloco, workers);  // with whoever is there
    if (due.finishes) finish_round(diloco, workers);
    if (due.starts || due.finishes) inner.copy_masters_to_params();
    log.add({loss, clip.norm, parameter_norm(own.flat), num_targets});
    run.end_step();
    if (run.should_save()) diloco.settle();  // what is in flight is saved, too
    run.record(log.share(run.stop_requested(), comm));
    if (run.should_save()) run.save(state());
    if (run.should_evaluate()) {
      run.record_validation(evaluate(global.loss_sum, batches.validation(), comm));
    }
  }
  diloco.settle();
  run.finish(state());
  workers.end();
  if (run.should_sample()) run.record_sample(generate(global.model, options));
  return run.report();
}

}  // namespace ladder::elastic
