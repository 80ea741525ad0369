#include "step8_pipeline_ga/exercise/grader.hpp"

#include "common/core/memory_ledger.hpp"
#include "step8_pipeline_ga/exercise/grade_runner.hpp"
#include "step8_pipeline_ga/exercise/grade_schedule.hpp"

namespace ladder::step8 {

std::vector<std::string> grade_plan(const MakePlan& attempt, Communicator& comm) {
  GradeSchedule grade(attempt, comm);
  grade.computes_in_this_order();
  grade.costs_what_it_should();
  grade.leaves_the_others_right();
  return grade.faults();
}

std::vector<std::string> grade_runner(const MakeRunner& attempt, Communicator& comm) {
  install_memory_ledger();
  GradeRunner grade(attempt, comm);
  const std::int64_t p = comm.size();
  const auto adds_right = [&](const GradeRunner::Run& run) { grade.adds_the_right_gradients(run); };
  adds_right({.schedule = Schedule::kGpipe, .num_microbatches = 4, .flush_size = 4});
  adds_right({.schedule = Schedule::k1f1b, .num_microbatches = 5, .flush_size = 3});
  grade.memory_does_not_grow();
  if (p > 1) {
    adds_right({.schedule = Schedule::kInterleaved,
                .num_microbatches = 2 * p,
                .flush_size = 2 * p,
                .chunks_per_stage = 2});
  }
  adds_right({.schedule = Schedule::kZeroBubble, .num_microbatches = p + 2, .flush_size = p + 2});
  adds_right({.schedule = Schedule::kZeroBubble,
              .num_microbatches = 4,
              .flush_size = 4,
              .is_heard = false});
  adds_right({.num_microbatches = 4, .flush_size = 3, .loss_scale = 65536});  // infinite in fp16
  grade.evaluates_without_a_trace();
  return grade.faults();
}

std::vector<std::string> grade(const MakePlan& plan, const MakeRunner& runner, Communicator& comm) {
  std::vector<std::string> faults = grade_plan(plan, comm);
  const std::vector<std::string> of_runner = grade_runner(runner, comm);
  const bool is_one_right = faults.empty() != of_runner.empty();
  const std::string right_one = faults.empty() ? "part 1 is right" : "part 2 is right";
  faults.insert(faults.end(), of_runner.begin(), of_runner.end());
  if (is_one_right) faults.push_back(right_one);
  return faults;
}

}  // namespace ladder::step8
