#include "tests/parity/rungs.hpp"

#include "common/core/check.hpp"
#include "step0_single_gpu/train.hpp"
#include "step1_ddp_reference/train.hpp"
#include "step2_sharded_data/train.hpp"
#include "step3_naive_dp/train.hpp"
#include "step4_bucketed_ddp/train.hpp"
#include "step5_zero1/train.hpp"
#include "step6_zero2/train.hpp"
#include "step7_zero3/train.hpp"

namespace ladder {

const Rung& oracle() {
  static const Rung rung = {.trainer = {.step = "step0_single_gpu",
                                        .train = step0::train,
                                        .state_bytes = step0::state_bytes,
                                        .step_traffic = step0::step_traffic}};
  return rung;
}

const std::vector<Rung>& rungs() {
  static const std::vector<Rung> all = {
      {.trainer = {.step = "step1_ddp_reference",
                   .train = step1::train,
                   .state_bytes = step1::state_bytes,
                   .step_traffic = step1::step_traffic},
       .equals = {"step0_single_gpu"}},
      {.trainer = {.step = "step2_sharded_data",
                   .train = step2::train,
                   .state_bytes = step2::state_bytes,
                   .step_traffic = step2::step_traffic},
       .equals = {"step1_ddp_reference", "step0_single_gpu"}},
      {.trainer = {.step = "step3_naive_dp",
                   .train = step3::train,
                   .state_bytes = step3::state_bytes,
                   .step_traffic = step3::step_traffic},
       .equals = {"step2_sharded_data", "step0_single_gpu"}},
      {.trainer = {.step = "step4_bucketed_ddp",
                   .train = step4::train,
                   .state_bytes = step4::state_bytes,
                   .step_traffic = step4::step_traffic},
       .equals = {"step3_naive_dp", "step0_single_gpu"}},
      {.trainer = {.step = "step5_zero1",
                   .train = step5::train,
                   .state_bytes = step5::state_bytes,
                   .step_traffic = step5::step_traffic},
       .equals = {"step4_bucketed_ddp", "step0_single_gpu"}},
      {.trainer = {.step = "step6_zero2",
                   .train = step6::train,
                   .state_bytes = step6::state_bytes,
                   .step_traffic = step6::step_traffic,
                   .microbatch_traffic = step6::microbatch_traffic,
                   .peak_bytes = step6::peak_bytes},
       .equals = {"step5_zero1", "step0_single_gpu"},
       .fold = Fold::kRanksFirst},
      {.trainer = {.step = "step7_zero3",
                   .train = step7::train,
                   .state_bytes = step7::state_bytes,
                   .step_traffic = step7::step_traffic,
                   .microbatch_traffic = step7::microbatch_traffic,
                   .peak_bytes = step7::peak_bytes,
                   .groups = {OptionGroup::kPrefetch}},
       .equals = {"step6_zero2", "step0_single_gpu"},
       .fold = Fold::kRanksFirst},
  };
  return all;
}

const Rung& rung_of(const std::string& step) {
  if (step == oracle().step()) return oracle();
  for (const Rung& rung : rungs()) {
    if (rung.step() == step) return rung;
  }
  throw CheckError("there is no rung " + step);
}

}  // namespace ladder
