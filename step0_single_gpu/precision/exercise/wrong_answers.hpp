// What the grader must reject: each for the reason given.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "common/testing/wrong_answer.hpp"
#include "step0_single_gpu/precision/exercise/grader.hpp"
#include "step0_single_gpu/precision/exercise/wrong_scalers.hpp"
#include "step0_single_gpu/precision/exercise/wrong_steps.hpp"

namespace ladder::loss_scaler {

template <class SomeScaler = RightScaler>
MakeScaler scaler_with() {
  return [](const std::optional<LossScaleOptions>& options) {
    return attempt_of(std::make_shared<SomeScaler>(options));
  };
}
template <class SomeStep = RightStep>
ScaledStep step_with() {
  return [attempt = std::make_shared<SomeStep>()](const StepParts& parts, std::int64_t step,
                                                  Communicator& comm) {
    return attempt->take(parts, step, comm);
  };
}

inline std::vector<WrongAnswer<MakeScaler>> wrong_scalers() {
  // One scaler is enough on any number of ranks, and the part stops after the first faulty check.
  const auto wrong = [](const std::string& name, const MakeScaler& attempt,
                        const std::string& reason) {
    return WrongAnswer<MakeScaler>{name, attempt, 1, "part 1, " + reason, "part 1, "};
  };
  return {
      wrong("keeps its scale", scaler_with<KeepsItsScale>(),
            "after a norm of inf at a scale of 1024, the scale is 1024, not 512"),
      wrong("starts over", scaler_with<StartsOver>(),
            "after a second norm of inf, the scale is 512, not 256"),
      wrong("misses infinity", scaler_with<MissesInfinity>(),
            "accepts(inf) returns true, not false"),
      wrong("misses NaN", scaler_with<MissesNotANumber>(), "accepts(nan) returns true, not false"),
      wrong("takes large for infinite", scaler_with<TakesLargeForInfinite>(),
            "accepts(100000) returns false, not true"),
      wrong("counts no skips", scaler_with<CountsNoSkips>(),
            "after a norm of inf at a scale of 1024, the number of skipped steps is 0, not 1"),
      wrong("counts skips in a row", scaler_with<CountsSkipsInARow>(),
            "after good, good, overflow, good, good, with a window of 3, the number of skipped "
            "steps is 0, not 1"),
      wrong("skips one more step", scaler_with<SkipsOneMoreStep>(),
            "accepts(1) returns false, not true"),
      wrong(
          "remembers good steps", scaler_with<RemembersGoodSteps>(),
          "after good, good, overflow, good, good, with a window of 3, the scale is 1024, not 512"),
      wrong(
          "counts a skipped step as good", scaler_with<CountsASkippedStepAsGood>(),
          "after a norm of inf at a scale of 1024, the number of good steps in a row is 1, not 0"),
      wrong("window + 1", scaler_with<WaitsOneStepLonger>(),
            "after 3 good steps in a row, with a window of 3, the scale is 1024, not 2048"),
      wrong("window - 1", scaler_with<WaitsOneStepLess>(),
            "after 2 good steps in a row, with a window of 3, the scale is 2048, not 1024"),
      wrong("misses a smaller window", scaler_with<MissesASmallerWindow>(),
            "restored with 4 good steps, with a window of 3, after another good one, the scale is "
            "256, not 512"),
      wrong("doubles at a multiple", scaler_with<DoublesAtAMultiple>(),
            "restored with 4 good steps, with a window of 3, after another good one, the scale is "
            "256, not 512"),
      wrong("doubles in every later step", scaler_with<DoublesInEveryLaterStep>(),
            "after 3 good steps in a row, with a window of 3, the number of good steps in a row is "
            "3, not 0"),
      wrong("grows to infinity", scaler_with<GrowsToInfinity>(),
            "after 2000 steps without any gradient, with a window of 1, the scale is inf, not "),
      wrong("counts on at the largest scale", scaler_with<CountsOnAtTheLargest>(),
            "after 2000 steps without any gradient, with a window of 1, the number of good steps "),
      wrong("counts for all scalers", scaler_with<CountsForAllScalers>(),
            "after 2 good steps each of two scalers: of the second one, the number of good steps "
            "in a row is 4, not 2"),
      wrong("skips forever", scaler_with<SkipsForever>(),
            "a norm of inf at a scale of 1: accepts() returns false and the scale is 1; expected a "
            "CheckError"),
      wrong("stays at 1", scaler_with<StaysAt1>(),
            "after 3 good steps at a scale of 1, with a window of 3, the scale is 1, not 2"),
      wrong("gives up after ten skips", scaler_with<GivesUpAfterTenSkips>(),
            "an overflow at a scale of 64, which can still be halved: 'training has diverged: "),
      wrong("gives up too early", scaler_with<GivesUpTooEarly>(),
            "an overflow at a scale of 2, which can still be halved: 'training has diverged: "),
      wrong(
          "gives up on infinity only", scaler_with<GivesUpOnInfinityOnly>(),
          "a norm of nan at a scale of 1: accepts() returns false and the scale is 0.5; expected"),
      wrong("has no advice", scaler_with<HasNoAdvice>(),
            "a norm of inf at a scale of 1: the error says 'overflow'; expected some advice"),
      wrong("restores no scale", scaler_with<RestoresNoScale>(),
            "as restored, the scale is 1024, not 256"),
      wrong("restores the scale only", scaler_with<RestoresTheScaleOnly>(),
            "as restored, the number of skipped steps is 0, not 2"),
      wrong("counts outside its state", scaler_with<CountsOutsideItsState>(),
            "restored with 2 good steps of 3, after another good one, the scale is 256, not 512"),
      wrong("is always on", scaler_with<IsAlwaysOn>(), "accepts(inf) returns false, not true"),
      wrong("takes a restored scale for its own", scaler_with<TakesARestoredScaleForItsOwn>(),
            "accepts(inf) returns false, not true"),
  };
}

inline std::vector<WrongAnswer<ScaledStep>> wrong_steps(int num_ranks) {
  const auto wrong = [](const std::string& name, const ScaledStep& attempt, int min_ranks,
                        const std::string& reason, const std::string& only = "part 2, ") {
    return WrongAnswer<ScaledStep>{name, attempt, min_ranks, reason, only};
  };
  const std::string clipping = "part 2, a scale of 1024 and clip_norm 1: ";
  const std::string returned = clipping + "the norm that scaled_step() returns is ";
  const std::string used = clipping + "the gradient that the optimizer uses is ";
  const std::string overflow = concat("part 2, a gradient of inf on rank 0 of ", num_ranks, ": ");
  const std::string num_calls = "the number of collectives that scaled_step() calls is ";
  const std::string num_steps = "the number of steps that the optimizer has taken is 1, not 0";
  const std::string rate_of = "the learning rate of step ";
  return {
      wrong("unscales after clipping", step_with<UnscalesAfterClipping>(), 1,
            num_ranks == 1 ? returned + "4096, not 4" : returned),
      wrong("clips by the scaled norm", step_with<ClipsByTheScaledNorm>(), 1, used, used),
      wrong("unscales a copy", step_with<UnscalesACopy>(), 1, used, used),
      wrong("unscales only what it clips", step_with<UnscalesOnlyWhatItClips>(), 1,
            "clip_norm 100: the gradient that the optimizer uses is "),
      wrong("never clips", step_with<NeverClips>(), 1, used, used),
      wrong("always clips", step_with<AlwaysClips>(), 1,
            "clip_norm 100: the gradient that the optimizer uses is "),
      wrong("divides the rate", step_with<DividesTheRate>(), 1, "part 2, AdamW: a parameter is "),
      wrong("returns the clipped norm", step_with<ReturnsTheClippedNorm>(), 1, returned, returned),
      wrong("uses the next scale", step_with<UsesTheNextScale>(), 1,
            "a step that doubles the scale: the gradient that the optimizer uses is 0.5, not 1 ",
            "a step that doubles the scale: the gradient that the optimizer uses is 0.5, not 1 "),
      wrong("undoes the growth", step_with<UndoesTheGrowth>(), 1,
            "a step that doubles the scale: the scale after it is 1024, not 2048"),

      wrong("decides locally", step_with<DecidesLocally>(), 2, overflow + num_steps, overflow),
      wrong("takes its own norm", step_with<TakesItsOwnNorm>(), 2, returned),
      wrong("adds up norms", step_with<AddsUpNorms>(), 2, returned),
      wrong("tells nobody", step_with<TellsNobody>(), 1, num_calls + "0, not 1"),
      wrong("agrees once more", step_with<AgreesOnceMore>(), 1, num_calls + "2, not 1",
            num_calls + "2, not 1"),
      wrong("sends a flag", step_with<SendsAFlag>(), 1,
            "what scaled_step() calls is all_reduce of 2 elements, not all_reduce of 1 element"),
      wrong("tells only the scaler of rank 0", step_with<TellsOnlyTheScalerOfRank0>(), 2,
            "the scale after it is 1024, not 2048"),
      wrong("leaves early", step_with<LeavesEarly>(), 2, "would wait for each other forever", ""),

      wrong("ignores the verdict", step_with<IgnoresTheVerdict>(), 1, overflow + num_steps),
      wrong("has a verdict of its own", step_with<HasAVerdictOfItsOwn>(), 1,
            "a gradient of nan without a scale: the number of steps that the optimizer has taken "
            "is 0, not 1"),
      wrong("steps with zeros", step_with<StepsWithZeros>(), 1, overflow + num_steps,
            overflow + num_steps),
      wrong("asks twice", step_with<AsksTwice>(), 1,
            "a step that doubles the scale: the scale after it is 4096, not 2048"),
      wrong("tells the scaler of overflows twice", step_with<TellsTheScalerOfOverflowsTwice>(), 1,
            overflow + "the number of skipped steps is 2, not 1"),
      wrong("hides the overflow", step_with<HidesTheOverflow>(), 1,
            overflow + "the norm that scaled_step() returns is 0, not inf",
            overflow + "the norm that scaled_step() returns is 0, not inf"),
      wrong("goes on at a scale of 1", step_with<GoesOnAtAScaleOf1>(), 1,
            "at a scale of 1: scaled_step() says nothing; expected a CheckError"),

      wrong("forgets the skipped steps", step_with<ForgetsTheSkippedSteps>(), 1,
            "overflows in steps 1, 2 and 4: " + rate_of + "3 is 8, not 9", rate_of),
      wrong("counts steps from 1", step_with<CountsStepsFrom1>(), 1,
            "overflows in steps 1, 2 and 4: " + rate_of + "0 is 9, not 4.5", rate_of),
      wrong("ends the schedule early", step_with<EndsTheScheduleEarly>(), 1,
            "part 2, a linear schedule, overflows in steps 1, 2 and 4: " + rate_of + "6 is ",
            rate_of),
      wrong("knows the warmup only", step_with<KnowsTheWarmupOnly>(), 1,
            "part 2, a linear schedule, overflows in steps 1, 2 and 4: " + rate_of + "6 is 9, ",
            rate_of),
      wrong("always falls linearly", step_with<AlwaysFallsLinearly>(), 1,
            "part 2, a cosine schedule, overflows in steps 1, 2 and 4: " + rate_of, rate_of),
      wrong("counts skips itself", step_with<CountsSkipsItself>(), 1,
            "resumed after 8 steps, of which 4 were skipped: " + rate_of + "8 is 3, not 7",
            rate_of),
  };
}

}  // namespace ladder::loss_scaler
