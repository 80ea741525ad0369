// What the grader must reject: each for the reason given.
#pragma once

#include <memory>
#include <sstream>
#include <string>
#include <vector>

#include "common/comm/traffic_theory.hpp"
#include "common/testing/wrong_answer.hpp"
#include "step9_diloco/exercise/wrong_averagers.hpp"
#include "step9_diloco/exercise/wrong_dilocos.hpp"
#include "step9_diloco/exercise/wrong_rounds.hpp"

namespace ladder::step9 {

template <class SomeAverager = RightAverager>
MakeAverager averager_with() {
  return [](Communicator& comm) { return std::make_unique<SomeAverager>(comm); };
}
template <class SomeDiloco = RightDiloco>
MakeDiloco diloco_with() {
  return [](FlatModel& model, FlatModel& global, const DilocoOptions& options, Averager& averager) {
    return attempt_of(std::make_shared<SomeDiloco>(model, global, options, averager));
  };
}

// As the grader prints a number in fp32.
inline std::string printed(double value) {
  std::ostringstream text;
  text.precision(9);
  text << static_cast<float>(value);
  return text.str();
}

// Worker r has r + 1, so the sum is N (N + 1) / 2.
inline std::vector<WrongAnswer<MakeAverager>> wrong_averagers(int num_ranks) {
  const double n = num_ranks, sum = n * (n + 1) / 2, mean = sum / n;
  const std::string have = concat("part 1, workers that have 1 to ", num_ranks, ": ");
  const std::string average = have + "the average of 60 values is ";
  const std::string in_start = have + "the number of operations that start() ";
  const std::string asks_for = have + "an average of 60 values asks for ";
  const std::int64_t bytes = all_reduce_traffic(60, 4, num_ranks, /*rank=*/0).bytes_sent();
  // Nothing else finds it.
  const auto only = [](const std::string& name, const MakeAverager& attempt, int min_ranks,
                       const std::string& reason) {
    return WrongAnswer<MakeAverager>{name, attempt, min_ranks, reason, reason};
  };
  std::vector<WrongAnswer<MakeAverager>> answers = {
      {"no division", averager_with<Sums>(), 2,
       concat(average, printed(sum), ", not ", printed(mean), " "), "average of"},
      {"always two workers", averager_with<AlwaysTwoWorkers>(), num_ranks == 2 ? 3 : 1,
       concat(average, printed(sum / 2), ", not ", printed(mean), " ")},
      {"counts the others only", averager_with<OnlyTheOthers>(), 2,
       concat(average, printed(sum / (n - 1)), ", not ", printed(mean), " ")},
      only("returns its rank", averager_with<ReturnsItsRank>(), 1,
           have + "the number of workers that finish() returns is "),
      only("returns nothing", averager_with<ReturnsNothing>(), 1,
           have + "finish() returns nothing, as if the round had failed"),

      only("waits in start", averager_with<WaitsInStart>(), 1,
           in_start + "waits for, while training could go on, is 1, not 0"),
      {"starts in finish", averager_with<StartsInFinish>(), 1,
       in_start + "has started is 0, not 1"},
      {"never waits", averager_with<NeverWaits>(), 1,
       have + "the number of operations that finish() leaves in flight is 1, not 0"},
      {"divides in flight", averager_with<DividesInFlight>(), 2,
       have + "the values are written to while they are in flight"},
      only("writes in flight", averager_with<WritesInFlight>(), 1,
           have + "the values are written to while they are in flight"),

      only("sends a copy", averager_with<SendsACopy>(), 1, have + "start() sends a copy"),
      {"sends doubles", averager_with<SendsDoubles>(), 2,
       concat(have, "the number of bytes that an average of 60 values sends is ", 2 * bytes,
              ", not ", bytes)},
      {"asks who takes part", averager_with<AsksWhoTakesPart>(), 1,
       asks_for + "all_reduce of 60 elements, all_reduce of 1 element; wanted: all_reduce of 60 "
                  "elements"},
      {"gathers all", averager_with<GathersAll>(), 1,
       concat(asks_for, "all_gather of ", 60 * num_ranks, " elements; wanted: all_reduce of 60 ")},
      {"rank 1 sends nothing", averager_with<RankOneSendsNothing>(), 2,
       "would wait for each other forever: rank 0: all_reduce of 60 elements; rank 1: all_reduce "
       "of 0 elements;"},

      only("keeps the values", averager_with<KeepsTheValues>(), 1,
           have + "the averager keeps the values after finish()"),
      only("keeps the work", averager_with<KeepsTheWork>(), 1,
           have + "the averager keeps the values after finish()"),
  };
  if (num_ranks == 3) {  // a division by 1, 2 or 4 is exact, whenever it happens
    const std::string order = "part 1, the order of the sum: the average of 60 values is ";
    const std::string rounded = "equal up to rounding";
    answers.push_back({"divides first", averager_with<DividesFirst>(), 3, order, rounded});
    answers.push_back(
        {"multiplies by 1/N", averager_with<MultipliesByTheInverse>(), 3, order, rounded});
  }
  return answers;
}

// The first parameter in the first round: it starts at 1, and all workers learn N/2 before the
// average starts, and 15 N/16 while it is in flight.
inline std::vector<WrongAnswer<MakeDiloco>> wrong_dilocos(int num_ranks) {
  const double n = num_ranks, g = n / 2, learned = 1 - 23 * n / 16;
  const double global = 1 - 0.5 * (g + 0.5 * g);  // v = g; outer lr and momentum 0.5
  const double mixed = 0.75 * global + 0.25 * learned;
  const auto in = [](const std::string& run, int round, int fragment) {
    return concat("part 2, ", run, ", round ", round, " (fragment ", fragment, "): ");
  };
  const std::string first = in("alpha 0", 1, 0), mix = in("alpha 0.25", 1, 0);
  const std::string nan_run = "alpha 0, parameters NaN while the average is in flight";
  const std::string resumed = "resumed in the middle of a round";
  const std::string started = "the number of averages that start_average() ";
  const std::string until_the_end = " until the end of the round is ";
  const std::string sent = "the pseudogradient, global - local, is ";
  const auto is_not = [](double found, double wanted) {
    return concat(" is ", printed(found), ", not ", printed(wanted), " ");
  };
  const auto wrong = [](const std::string& name, const MakeDiloco& attempt,
                        const std::string& reason) {
    return WrongAnswer<MakeDiloco>{name, attempt, 1, reason, "part 2, "};
  };
  return {
      wrong("local - global", diloco_with<LocalMinusGlobal>(),
            first + "the pseudogradient, global - local," + is_not(-g, g)),
      wrong("averages parameters", diloco_with<AveragesParameters>(), first + sent),
      wrong("averages the model", diloco_with<AveragesTheModel>(),
            first + sent + "Float[96], not Float[16]"),
      wrong("subtracts in place", diloco_with<SubtractsInPlace>(),
            first + "after start_average() a parameter of this worker is -12345, not "),
      wrong("waits at once", diloco_with<WaitsAtOnce>(), first + started + "waits for is 1, not 0"),
      wrong("all at the end", diloco_with<AllAtTheEnd>(), first + started + "starts is 0, not 1"),
      wrong("scales in flight", diloco_with<ScalesInFlight>(),
            first + "the pseudogradient is written to while it is in flight"),
      wrong("inherits the type", diloco_with<InheritsTheType>(),
            in("parameters in bf16", 1, 0) + sent + "BFloat16[16], not Float[16]"),

      wrong("steps the local parameters", diloco_with<StepsTheParameters>(),
            first + "fragment 0 of the global parameters" + is_not(learned - 0.75 * g, global)),
      wrong("forgets the momentum", diloco_with<ForgetsTheMomentum>(),
            in("alpha 0", 4, 0) + "fragment 0 of the outer momentum is "),
      wrong("one momentum for all", diloco_with<OneMomentum>(),
            in("alpha 0", 2, 1) + "fragment 0 of the outer momentum is "),
      wrong("always the first fragment", diloco_with<AlwaysTheFirstFragment>(),
            in("alpha 0", 2, 1) + sent + "Float[16], not Float[32]"),
      wrong("never counts", diloco_with<NeverCounts>(),
            first + "the number of outer steps taken is 0, not 1"),

      wrong("mixes first", diloco_with<MixesFirst>(),
            mix + "fragment 0 of the global parameters" + is_not(mixed, global)),
      wrong("mixes the other way round", diloco_with<MixesTheOtherWayRound>(),
            first + "fragment 0 of this worker's parameters" + is_not(learned, global)),
      wrong("alpha and 1 - alpha", diloco_with<MixesTheOtherShares>(),
            mix + "fragment 0 of this worker's parameters" +
                is_not(0.25 * global + 0.75 * learned, mixed)),
      wrong("keeps nothing", diloco_with<KeepsNothing>(),
            mix + "fragment 0 of this worker's parameters" + is_not(global, mixed)),
      wrong("keeps all", diloco_with<KeepsAll>(),
            first + "fragment 0 of this worker's parameters" + is_not(learned, global)),
      wrong("mixes whatever alpha is", diloco_with<MixesWhateverAlphaIs>(),
            in("alpha 1", 1, 0) + "alpha 1 leaves the parameters of the worker alone, to the bit"),
      wrong("mixes with alpha 0", diloco_with<MixesWithAlpha0>(),
            in(nan_run, 1, 0) + "fragment 0 of this worker's parameters is nan, not -0 "),
      wrong("adds to zero", diloco_with<AddsToZero>(),
            in(nan_run, 1, 0) + "alpha 0 copies the global parameters, to the bit"),
      wrong("mixes the difference", diloco_with<MixesTheDifference>(),
            in("alpha 1", 1, 0) + "fragment 0 of this worker's parameters is "),
      wrong("mixes the model", diloco_with<MixesTheModel>(),
            first + "fragment 1 of this worker's parameters is 1, not "),
      wrong("mixes what it had at the start", diloco_with<MixesWhatItHadAtTheStart>(),
            mix + "fragment 0 of this worker's parameters" +
                is_not(0.75 * global + 0.25 * (1 - g), mixed)),

      wrong("ignores the vote", diloco_with<IgnoresTheVote>(),
            in("rounds that fail", 1, 0) + "fragment 0 of the outer momentum is -54321, not 0 "),
      wrong("skips the fragment", diloco_with<SkipsTheFragment>(),
            in("rounds that fail", 1, 0) + "the number of outer steps taken is 1, not 0"),
      wrong("keeps what it learned", diloco_with<KeepsWhatItLearned>(),
            in("rounds that fail", 1, 0) + "fragment 0 of this worker's parameters" +
                is_not(learned, 1)),
      wrong("mixes after a failure", diloco_with<MixesAfterAFailure>(),
            in("rounds that fail", 1, 0) + "fragment 0 of this worker's parameters" +
                is_not(0.75 + 0.25 * learned, 1)),
      wrong("keeps all after a failure", diloco_with<KeepsAllAfterAFailure>(),
            in("rounds that fail, alpha 1", 1, 0) + "fragment 0 of this worker's parameters is "),
      wrong("loses the whole model", diloco_with<LosesTheWholeModel>(),
            in("rounds that fail", 1, 0) + "fragment 1 of this worker's parameters is 1, not "),
      wrong("moves the momentum", diloco_with<MovesTheMomentum>(),
            in("rounds that fail", 1, 0) + "fragment 0 of the outer momentum is -54321, not 0 "),
      wrong("drops the momentum", diloco_with<DropsTheMomentum>(),
            in("rounds that fail", 7, 0) + "fragment 0 of the outer momentum is 0, not "),
      wrong("says nothing of a failure", diloco_with<SaysNothing>(),
            in("rounds that fail", 1, 0) + "what finish_round() returns is true, not false"),

      wrong("needs a start", diloco_with<NeedsAStart>(),
            "part 2, started by finish_round(): start_average() has not been called"),
      wrong("skips what has not started", diloco_with<SkipsWhatHasNotStarted>(),
            in("started by finish_round()", 1, 0) + "the number of averages that are started" +
                until_the_end + "0, not 1"),
      wrong("starts again after a checkpoint", diloco_with<StartsWhatIsNotInFlight>(),
            in("checkpoints in between", 1, 0) + "the number of averages that are started" +
                until_the_end + "2, not 1"),
      wrong("waits twice", diloco_with<WaitsTwice>(),
            "part 2, checkpoints in between: an average is waited for, but none is in flight"),
      wrong("tells nobody of its start", diloco_with<TellsNobodyOfItsStart>(),
            in("checkpoints in between", 1, 0) + "the average that a checkpoint saves is "),

      wrong("forgets the outer steps", diloco_with<ForgetsTheOuterSteps>(),
            in(resumed, 2, 1) + "the number of outer steps after restore() is 0, not 1"),
      wrong("skips a start once restored", diloco_with<SkipsAStartOnceRestored>(),
            in(resumed, 2, 1) + started + "starts is 0, not 1"),
      wrong("starts again once restored", diloco_with<StartsAgainOnceRestored>(),
            in(resumed, 1, 0) + "the number of averages that are started" + until_the_end +
                "2, not 1"),

      wrong("keeps the pseudogradient", diloco_with<KeepsThePseudogradient>(),
            first + "the pseudogradient is kept after finish_round()"),
      wrong("keeps it after a failure", diloco_with<KeepsItAfterAFailure>(),
            in("started by finish_round()", 3, 1) + "the number of averages that are started" +
                until_the_end + "0, not 1"),
      wrong("keeps the average", diloco_with<KeepsTheAverage>(),
            in("memory", 1, 0) +
                "the number of bytes that finish_round() leaves behind is 64, not 0"),
      wrong("keeps a copy", diloco_with<KeepsACopy>(),
            in("memory", 1, 0) +
                "the number of bytes that start_average() leaves in memory is 128, "
                "not 64"),
      wrong("counts activations", diloco_with<CountsActivations>(),
            in("memory", 1, 0) +
                "the number of these bytes that are counted as gradients is 0, not 64"),
  };
}

}  // namespace ladder::step9
