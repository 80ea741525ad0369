// What the grader must reject: each for the reason given.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "common/testing/wrong_answer.hpp"
#include "step8_pipeline_ga/exercise/wrong_runners.hpp"
#include "step8_pipeline_ga/exercise/wrong_schedules.hpp"

namespace ladder::step8 {

template <class SomeSchedule = RightSchedule>
MakePlan plan_with() {
  return [](Schedule schedule, int p, std::int64_t m, int v) {
    return SomeSchedule().plan(schedule, p, m, v);
  };
}
// Whatever was asked for.
inline MakePlan always(Schedule other, int chunks_per_stage) {
  return [=](Schedule schedule, int p, std::int64_t m, int v) {
    if (schedule != Schedule::k1f1b || p == 1 || m % p > 0)
      return RightSchedule().plan(schedule, p, m, v);
    return RightSchedule().plan(other, p, m, chunks_per_stage);
  };
}

// A plan is the same on all ranks, so one rank is enough.
inline std::vector<WrongAnswer<MakePlan>> wrong_plans() {
  const std::string two_stages = "part 1, 1f1b with 2 stages and 3 microbatches: ";
  return {
      {"a warm-up that is one forward too short", plan_with<WarmUpTooShort>(), 1,
       two_stages + "stage 0 computes F0 B0 F1 B1 F2 B2, not F0 F1 B0 F2 B1 B2"},
      {"a warm-up that is one forward too long", plan_with<WarmUpTooLong>(), 1,
       two_stages + "stage 0 remembers 3 microbatches at once, not min(m, p - r) = 2"},
      {"a backward before its forward", plan_with<BackwardBeforeForward>(), 1,
       two_stages + "stage 1: B0 comes before F0, which it needs"},
      {"the same warm-up on all stages", plan_with<SameWarmUpEverywhere>(), 1,
       two_stages + "stage 1 computes F0 F1 B0 F2 B1 B2, not F0 B0 F1 B1 F2 B2"},
      {"a warm-up that grows from stage to stage", plan_with<WarmUpGrows>(), 1,
       two_stages + "every stage waits for another one"},

      {"one turn only", plan_with<OneTurn>(), 1,
       two_stages + "it takes 14 forwards' time, not (m + p - 1)(1 + 2) = 12"},
      {"the latest microbatch first", plan_with<LatestFirst>(), 1,
       two_stages + "stage 0: B1 comes before B0: the chunk's gradients are summed out of order"},
      {"no cool-down", plan_with<ForgetsTheRest>(), 1, two_stages + "stage 0: B1 is missing"},
      {"a forward too few", plan_with<ForgetsAForward>(), 1, two_stages + "stage 0: F2 is missing"},
      {"needs as many microbatches as stages", plan_with<NeedsMoreMicrobatches>(), 1,
       "part 1, 1f1b with 4 stages and 2 microbatches: fewer microbatches than stages"},

      {"a deadlock", plan_with<WaitsToSend>(), 1,
       two_stages + "deadlock: stage 0 waits to send activation 1 to stage 1, which waits to send "
                    "gradient 0 to stage 0"},
      {"a message that nobody receives", plan_with<ForgetsTheLastGradient>(), 1,
       two_stages + "stage 0: B2 lacks receive gradient 2, which it needs"},

      {"GPipe", always(Schedule::kGpipe, 1), 1,
       "a right plan, but GPipe: no backward before the last forward"},
      {"interleaved", always(Schedule::kInterleaved, 2), 1,
       "a right plan, but interleaved: 2 chunks per stage"},
      {"zero bubble", always(Schedule::kZeroBubble, 1), 1, "a right plan, but a zero-bubble one"},
      {"1F1B whatever is asked for", plan_with<AlwaysTheSame>(), 1,
       "part 1, gpipe with 3 stages and 4 microbatches: stage 0 remembers 3 microbatches at once, "
       "not 4"},
  };
}

inline std::vector<WrongAnswer<MakeRunner>> wrong_runners() {
  const std::string gpipe = "part 2, gpipe with 4 microbatches: ";
  const std::string kept_too_long = " is still in memory: activations kept too long";
  const std::string calls = "the number of calls of on_weight_gradient";
  const std::string returned_loss = "the loss that is returned is ";
  const std::string fp16 = "part 2, 1f1b with 4 microbatches in fp16, the loss times 65536: ";
  return {
      {"double scaling", run_with<ScalesTheLoss>(), 1,
       "is 0.25 times what it should be: the loss is divided by the step's targets already"},
      {"scaling on every stage", run_with<ScalesOnEveryStage>(), 2,
       "times what it should be: the loss is divided"},
      {"ones instead of what was received", run_with<StartsFromOnes>(), 2,
       gpipe + "the gradient of 'embedding.table' is "},
      {"no loss scale", run_with<ForgetsTheLossScale>(), 1, "", fp16},
      {"a loss scale in 16 bits", run_with<LossScaleIn16Bits>(), 1, "", fp16},
      {"a loss scale on every stage", run_with<LossScaleOnEveryStage>(), 2, "", fp16},
      {"the wrong microbatch", run_with<LatestLive>(), 1, gpipe + "when B3"},

      {"the other part of a shared leaf's gradient is missing", run_with<ForgetsSharedLeaves>(), 2,
       "the gradient of 'chunk0.gain', which several chunks of the stage read, is ",
       "part 2, interleaved with "},
      {"only the last microbatch's gradients", run_with<OverwritesGradients>(), 1,
       gpipe + "the gradient of 'embedding.table' is 0, not "},
      {"backward twice", run_with<GoesBackwardTwice>(), 1,
       "times what it should be: is it added more than once?"},

      {"passes on the gradient of the output", run_with<PassesOnWhatItReceived>(), 2,
       "leaves to be sent, the gradient of its input, is "},
      {"sends by itself", run_with<SendsItself>(), 2, gpipe + "the runner sends one tensor twice"},
      {"sends nothing", run_with<SendsNothing>(), 2,
       gpipe + "send gradient 0.c1: nothing has been left for it"},

      {"keeps the graph", run_with<KeepsTheGraph>(), 1,
       gpipe + "when B1 begins, what autograd has saved for B0" + kept_too_long},
      {"keeps the input", run_with<KeepsTheInput>(), 2,
       gpipe + "when B1.c1 begins, the input for B0.c1" + kept_too_long},
      {"keeps what it received", run_with<KeepsWhatItReceived>(), 2,
       gpipe + "when B1 begins, the received gradient for B0" + kept_too_long},
      {"keeps a copy", run_with<KeepsACopy>(), 1,
       "the number of bytes by which memory grows from F", "part 2, 1f1b with "},

      {"computes weight halves at once", run_with<WeightHalvesAtOnce>(), 2,
       calls + " before 'send gradient 0", "part 2, zero-bubble with "},
      {"forgets weight halves", run_with<ForgetsWeightHalves>(), 1, ".weight' is undefined",
       "part 2, zero-bubble with "},
      {"does not report weight halves", run_with<TellsNobody>(), 1, calls, calls},
      {"keeps the input for the weight half", run_with<KeepsTheInputForTheWeightHalf>(), 2,
       " begins, the input for I0.c1" + kept_too_long},
      {"needs an on_weight_gradient", run_with<NeedsAListener>(), 1, ".weight' is undefined",
       ", without an on_weight_gradient"},
      {"reports one parameter only", run_with<ReportsTheFirstParameter>(), 1,
       calls + " with 'chunk", calls},

      {"returns no loss", run_with<ReturnsNothing>(), 1, gpipe + returned_loss + "0, not "},
      {"returns the loss of the last flush", run_with<ReturnsTheLastFlush>(), 1,
       "part 2, 1f1b with 5 microbatches: " + returned_loss},
      {"keeps what it evaluates", run_with<KeepsEvaluations>(), 2,
       "part 2, an evaluation: the number of bytes that stay in memory is "},
      {"scores an evaluation by its last microbatch", run_with<EvaluatesTheLast>(), 1,
       "part 2, an evaluation: the loss of microbatch 0 is "},
      {"returns the scaled loss", run_with<ReturnsTheScaledLoss>(), 1, fp16 + returned_loss, fp16},
  };
}

}  // namespace ladder::step8
