#include "tests/parity/rungs.hpp"

#include "step0_single_gpu/train.hpp"
#include "step1_ddp_reference/train.hpp"
#include "step2_sharded_data/train.hpp"
#include "step3_naive_dp/train.hpp"
#include "step4_bucketed_ddp/train.hpp"

namespace ladder {

const Rung& oracle() {
  static const Rung rung = {"step0_single_gpu", step0::train, step0::state_bytes,
                            step0::step_traffic};
  return rung;
}

const std::vector<Rung>& rungs() {
  static const std::vector<Rung> all = {
      {"step1_ddp_reference",
       step1::train,
       step1::state_bytes,
       step1::step_traffic,
       {"step0_single_gpu"}},
      {"step2_sharded_data",
       step2::train,
       step2::state_bytes,
       step2::step_traffic,
       {"step1_ddp_reference", "step0_single_gpu"}},
      {"step3_naive_dp",
       step3::train,
       step3::state_bytes,
       step3::step_traffic,
       {"step2_sharded_data", "step0_single_gpu"}},
      {"step4_bucketed_ddp",
       step4::train,
       step4::state_bytes,
       step4::step_traffic,
       {"step3_naive_dp", "step0_single_gpu"}},
  };
  return all;
}

}  // namespace ladder
