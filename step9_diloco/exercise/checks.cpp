// Judges the average over the workers and a round of DiLoCo, each without the other: a round gets
// an averager that is not the answer's.
#include "common/core/memory_ledger.hpp"
#include "common/testing/judge_main.hpp"
#include "step9_diloco/exercise/averager_checks.hpp"
#include "step9_diloco/exercise/diloco_checks.hpp"

namespace ladder {
namespace step9 {
namespace {

std::vector<std::string> faults_of_averager(Communicator& comm) {
  AveragerChecks checks(comm);
  checks.averages();
  checks.averages_what_is_infinite();
  checks.adds_up_in_the_order_of_the_workers();
  return checks.faults();
}

// From the fourth round on, a fragment has its next turn: what the last one left behind shows.
std::vector<std::string> faults_of_diloco(Communicator& comm) {
  install_memory_ledger();
  DilocoChecks checks(comm);
  checks.trains({.name = "alpha 0", .alpha = 0, .num_rounds = 7});
  checks.trains({.name = "alpha 0.25", .alpha = 0.25, .num_rounds = 4});
  checks.trains({.name = "alpha 1", .alpha = 1, .num_rounds = 4});
  checks.trains(
      {.name = "rounds that fail", .alpha = 0.25, .num_rounds = 8, .failures = {1, 3, 4, 7}});
  checks.trains(
      {.name = "rounds that fail, alpha 1", .alpha = 1, .num_rounds = 3, .failures = {1, 3}});
  checks.trains({.name = "alpha 0, parameters NaN while the average is in flight",
                 .alpha = 0,
                 .num_rounds = 3,
                 .failures = {2},
                 .has_nan = true});
  checks.trains({.name = "started by finish_round()",
                 .alpha = 0.25,
                 .num_rounds = 4,
                 .failures = {2},
                 .starts = false});
  checks.trains({.name = "checkpoints in between",
                 .alpha = 0.25,
                 .num_rounds = 4,
                 .failures = {2},
                 .settles = true});
  checks.trains({.name = "resumed in the middle of a round",
                 .alpha = 0.25,
                 .num_rounds = 4,
                 .settles = true,
                 .resumes = true});
  checks.trains({.name = "parameters in bf16, global ones in fp32",
                 .alpha = 0,
                 .num_rounds = 4,
                 .type = at::kBFloat16});
  checks.trains({.name = "parameters in bf16, global ones in fp32, alpha 0.25",
                 .alpha = 0.25,
                 .num_rounds = 1,
                 .type = at::kBFloat16});
  for (const at::ScalarType type : {at::kFloat, at::kBFloat16}) {
    checks.trains(
        {.name = type == at::kFloat ? "memory" : "memory, parameters in bf16, global ones in fp32",
         .alpha = 0.25,
         .num_rounds = 3,
         .failures = {2},
         .measures = true,
         .type = type});
  }
  return checks.faults();
}

}  // namespace
}  // namespace step9

std::vector<std::string> judge_linked(Communicator& comm) {
  return faults_of_both(step9::faults_of_averager(comm), step9::faults_of_diloco(comm));
}

}  // namespace ladder
