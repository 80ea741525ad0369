// What the grader must reject: each for the reason given.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "common/testing/wrong_answer.hpp"
#include "step4_bucketed_ddp/exercise/wrong_bucketers.hpp"

namespace ladder::step4 {

template <class Bucketer>
MakeBucketer make() {
  return [](FlatGradients& grads, const std::vector<GradientBucket>& plan, Communicator& comm,
            const StartReduction& start_reduction) {
    const auto bucketer = std::make_shared<Bucketer>(grads, plan, comm, start_reduction);
    return BucketerAttempt{[bucketer](std::int64_t m) { bucketer->arm(m); },
                           [bucketer] { bucketer->wait(); }};
  };
}

// Rank r's gradient of the first tensor is r + 1.
inline std::vector<WrongAnswer<MakeBucketer>> wrong_answers(int num_ranks) {
  const double sum = num_ranks * (num_ranks + 1) / 2.0;
  const std::string different = "would wait for each other forever: rank 0: ";
  const std::string wants_an_error = " says nothing; expected a CheckError";
  const std::string idle =
      " hooks that run while something is on its way call no test(), the first that of ";
  // Nothing else finds it.
  const auto only = [](const std::string& name, const MakeBucketer& attempt,
                       const std::string& reason) {
    return WrongAnswer<MakeBucketer>{name, attempt, 1, reason, reason};
  };
  return {
      {"mean", make<Mean>(), 2,
       concat("in another order than the plan's, is ", sum / num_ranks, ", not ", sum)},
      {"own copies", make<OwnCopies>(), 1, "a bucket is a copy"},
      only("keeps a copy", make<KeepsACopy>(), "is there a copy of the gradients?"),
      only("always all-reduces", make<AlwaysAllReduces>(),
           "the number of buckets that start_reduction is called for is 0, not 5"),

      {"leaves at the first gradient", make<LeavesAtFirstGradient>(), 1,
       "gradient of 'head.weight', at the moment when bucket 0 leaves with it, is 0, not "},
      {"leaves in the first backward", make<LeavesInFirstBackward>(), 1,
       "that the first two of three backwards start in step 1 is 5, not 0"},
      {"every microbatch", make<EveryMicrobatch>(), 1,
       "that the first two of three backwards start in step 1 is 10, not 0"},
      {"only in wait", make<OnlyInWait>(), 1, "before the last gradient was computed is 0, not 4"},
      {"in ready order", make<InReadyOrder>(), 1, "all-reduce 0 begins at is 208, not 560"},
      {"in each rank's own ready order", make<InReadyOrder>(), 2,
       different + "all_reduce of 304 elements; rank 1: all_reduce of 64 elements"},
      {"leaves the last out on rank 0", make<LeavesTheLastOutOnRank0>(), 2,
       different + "nothing more; rank 1: all_reduce of 112 elements"},
      {"only the first step", make<OnlyFirstStep>(), 1,
       "when the last backward of step 2 has ended is 0, not 5"},

      only("never polls", make<NeverPolls>(), "7 of 7" + idle + "'head.gain'"),
      only("polls when a bucket starts", make<PollsWhenOneStarts>(),
           "3 of 7" + idle + "'head.gain'"),
      only("never waits", make<NeverWaits>(),
           "wait() returns while 5 all-reduces are still on their way"),
      {"waits in the hook", make<WaitsInHook>(), 1, "which hold it up, is "},

      {"always armed", make<AlwaysArmed>(), 1, "that a backward before arm() starts is 5, not 0",
       "a backward "},
      only("stays armed", make<StaysArmed>(), "a backward after wait(): rank "),

      only("trips over the frozen", make<TripsOverTheFrozen>(),
           "wait() throws although every trainable parameter has its gradient"),
      {"accepts too few gradients", make<AcceptsTooFew>(), 1,
       "a backward without 'block0.weight'" + wants_an_error, "without 'block0.weight'"},
      only("accepts one of two gradients", make<AcceptsOneOfTwo>(),
           "the second without 'block0.weight'," + wants_an_error),
      only("names the bucket's first", make<NamesTheBucketsFirst>(), "without 'block0.weight'"),
      only("names no rank", make<NamesNoRank>(), "without 'rank 0'"),
      only("accepts too many gradients", make<AcceptsTooMany>(),
           "which begins with 'head.bias'," + wants_an_error),
      only("waits without arm()", make<WaitsUnarmed>(), "wait() without arm()" + wants_an_error),
      only("arms for no backward", make<ArmsForNothing>(),
           "arm(0), for no backward," + wants_an_error),
      only("arms twice", make<ArmsTwice>(), "arm() after arm()" + wants_an_error),
      only("leaves its hooks", make<LeavesItsHooks>(), "keeps its hook when the bucketer is gone"),
  };
}

}  // namespace ladder::step4
