// Judges 1F1B and the runner's backward, each without the other: plans are values, and the runner
// gets plans that are not the answer's. Then the trainer shows that the two train.
#include "common/core/memory_ledger.hpp"
#include "common/testing/judge_main.hpp"
#include "step0_single_gpu/judge/judge.hpp"
#include "step8_pipeline_ga/exercise/plan_checks.hpp"
#include "step8_pipeline_ga/exercise/runner_checks.hpp"
#include "step8_pipeline_ga/train.hpp"

namespace ladder {
namespace step8 {
namespace {

std::vector<std::string> faults_of_plan(Communicator& comm) {
  PlanChecks checks(comm);
  checks.computes_in_this_order();
  checks.costs_what_it_should();
  checks.leaves_the_others_right();
  return checks.faults();
}

std::vector<std::string> faults_of_runner(Communicator& comm) {
  install_memory_ledger();
  RunnerChecks checks(comm);
  const std::int64_t p = comm.size();
  checks.adds_the_right_gradients(
      {.schedule = Schedule::kGpipe, .num_microbatches = 4, .flush_size = 4});
  checks.adds_the_right_gradients(
      {.schedule = Schedule::k1f1b, .num_microbatches = 5, .flush_size = 3});
  checks.memory_does_not_grow();
  if (p > 1) {
    checks.adds_the_right_gradients({.schedule = Schedule::kInterleaved,
                                     .num_microbatches = 2 * p,
                                     .flush_size = 2 * p,
                                     .chunks_per_stage = 2});
  }
  for (const bool is_heard : {true, false}) {
    checks.adds_the_right_gradients({.schedule = Schedule::kZeroBubble,
                                     .num_microbatches = p + 2,
                                     .flush_size = p + 2,
                                     .is_heard = is_heard});
  }
  // As a loss scale, 65536 is infinite in fp16.
  checks.adds_the_right_gradients({.num_microbatches = 4, .flush_size = 3, .loss_scale = 65536});
  checks.evaluates_without_a_trace();
  return checks.faults();
}

// All ranks are one pipeline; each training has another schedule.
void vary(TrainOptions& options, int number, int num_ranks) {
  constexpr Schedule kSchedules[] = {Schedule::kGpipe, Schedule::k1f1b, Schedule::kZeroBubble,
                                     Schedule::kInterleaved};
  const Schedule schedule =
      number % 4 == 3 && num_ranks == 1 ? Schedule::k1f1b : kSchedules[number % 4];
  const int num_chunks = schedule == Schedule::kInterleaved ? 2 : 1;
  options.set<PipelineOptions>() = {
      .num_stages = num_ranks, .schedule = schedule, .chunks_per_stage = num_chunks};
  // On several stages, the gradient of a tied embedding is summed in another order.
  if (num_ranks > 1) options.model.tie_embeddings = false;
  options.model.layers = num_ranks * num_chunks;
  options.data.num_microbatches = num_ranks * (1 + number % 2);
}

}  // namespace
}  // namespace step8

std::vector<std::string> judge_linked(Communicator& comm) {
  const std::vector<std::string> faults =
      faults_of_both(step8::faults_of_plan(comm), step8::faults_of_runner(comm));
  if (!faults.empty()) return faults;
  Judge judge({.trainer = step8::trainer(),
               .vary = [&](TrainOptions& options,
                           int number) { step8::vary(options, number, comm.size()); }},
              comm);
  judge.all_cases_are_right();
  return judge.faults();
}

}  // namespace ladder
