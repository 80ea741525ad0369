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
#include "step8_pipeline_ga/objectives/train.hpp"
#include "step8_pipeline_ga/train.hpp"
#include "step9_diloco/train.hpp"

namespace ladder {

const Rung& oracle() {
  static const Rung rung = {.trainer = step0::trainer()};
  return rung;
}

const std::vector<Rung>& rungs() {
  static const std::vector<Rung> all = {
      {step1::trainer()},
      {step2::trainer()},
      {step3::trainer()},
      {step4::trainer()},
      {step5::trainer()},
      {step6::trainer(), /*sums_each_microbatch=*/true},
      {step7::trainer(), /*sums_each_microbatch=*/true, /*starts_by_broadcast=*/false},
  };
  return all;
}

const Rung& pipeline() {
  static const Rung rung = {step8::trainer()};
  return rung;
}

const Rung& pipeline_with_objectives() {
  static const Rung rung = {objectives::trainer()};
  return rung;
}

const Rung& diloco() {
  static const Rung rung = {step9::trainer()};
  return rung;
}

const Rung& rung_of(const std::string& step) {
  if (step == oracle().step()) return oracle();
  if (step == pipeline().step()) return pipeline();
  if (step == pipeline_with_objectives().step()) return pipeline_with_objectives();
  if (step == diloco().step()) return diloco();
  for (const Rung& rung : rungs()) {
    if (rung.step() == step) return rung;
  }
  throw CheckError("there is no rung " + step);
}

}  // namespace ladder
