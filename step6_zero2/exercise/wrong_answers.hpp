// What the grader must reject: each for the reason given.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "common/testing/wrong_answer.hpp"
#include "step6_zero2/exercise/wrong_sharders.hpp"

namespace ladder::step6 {

template <class Sharder>
MakeSharder make() {
  return [](const ShardPlan& plan, const std::vector<NamedTensor>& leaves, Communicator& comm) {
    const auto sharder = std::make_shared<Sharder>(plan, leaves, comm);
    return SharderAttempt{[sharder](std::int64_t m) { sharder->arm(m); },
                          [sharder] { sharder->wait(); }, sharder->grad_shard()};
  };
}

// The grader's units have 1, 2, 3, 1 (frozen), 4 and 5 times 1024 N elements. In the first tensor
// rank r's gradient of microbatch j is (r + 1)(j + 1).
inline std::vector<WrongAnswer<MakeSharder>> wrong_answers(int num_ranks) {
  const std::int64_t ranks = num_ranks * (num_ranks + 1) / 2;
  const std::int64_t shard_bytes = 4 * 16 * 1024;
  const auto peak = [&](std::int64_t multiples) {
    return concat("that two microbatches hold is ", shard_bytes + 4 * multiples * 1024 * num_ranks,
                  ", not ", shard_bytes + 4 * 9 * 1024 * num_ranks);
  };
  const std::string shard = "the gradient shard after step 1 of three microbatches is ";
  const std::string wants_an_error = " says nothing; expected a CheckError";
  const std::string idle =
      " hooks that run while something is on its way call no test(), the first ";
  // Nothing else finds it.
  const auto only = [](const std::string& name, const MakeSharder& attempt,
                       const std::string& reason) {
    return WrongAnswer<MakeSharder>{name, attempt, 1, reason, reason};
  };
  return {
      {"keeps .grad", make<KeepsGrad>(), 1, "held when the last gradient is computed is "},
      {"gaps not zeroed", make<GapsNotZeroed>(), 1, "not 0 (element 10; ", shard.substr(0, 18)},
      only("a buffer that nobody counts", make<NotCounted>(), " bytes of "),
      {"overwrites", make<Overwrites>(), 1, concat(shard, 3 * ranks, ", not ", 6 * ranks)},
      {"all_reduce", make<AllReduces>(), 2, "bytes sent by step 1 of three microbatches is "},

      {"leaves at the first gradient", make<LeavesAtFirstGradient>(), 1,
       "gradient of 'unit4.short', at the moment when its unit leaves with it, is 0, not "},
      {"microbatches first, then ranks", make<AddsMicrobatchesFirst>(), 2, shard},
      {"only in wait", make<OnlyInWait>(), 1, peak(15)},
      {"only the last microbatch", make<OnlyLastMicrobatch>(), 1,
       "reduce_scatters of step 1 of three microbatches is 5, not 15"},
      {"in ready order", make<InReadyOrder>(), 1,
       concat("is reduce_scatter of ", 3 * 1024 * num_ranks, " elements, not reduce_scatter of ",
              5 * 1024 * num_ranks)},
      {"in each rank's own ready order", make<InReadyOrder>(), 2,
       "the ranks do not do the same, and would wait for each other forever"},

      {"several on their way", make<SeveralOnTheirWay>(), 1, peak(30)},
      only("frees early", make<FreesEarly>(), "where test() is true at once"),
      {"waits in the hook", make<WaitsInHook>(), 1,
       "when the last gradient is computed is 0, not 1"},
      only("never polls", make<NeverPolls>(), "18 of 18" + idle + "that of 'unit3.long'"),
      only("polls when a unit starts", make<PollsWhenOneStarts>(),
           "9 of 18" + idle + "that of 'unit3.long'"),
      only("never waits", make<NeverWaits>(),
           "wait() returns while 5 reduce_scatters are still on their way"),

      {"always armed", make<AlwaysArmed>(), 1, "that a backward before arm() starts is 5, not 0",
       "a backward "},
      only("stays armed", make<StaysArmed>(), "a backward after wait(): rank "),

      only("trips over the frozen", make<TripsOverTheFrozen>(),
           "wait() throws although every trainable parameter has its gradient"),
      {"accepts too few gradients", make<AcceptsTooFew>(), 1,
       "a backward without 'unit2.long'" + wants_an_error, "without 'unit2.long'"},
      only("names the unit's last", make<NamesTheUnitsLast>(), "without 'unit2.long'"),
      only("names no rank", make<NamesNoRank>(), "without 'rank 0'"),
      only("accepts too many gradients", make<AcceptsTooMany>(),
           "which begins with 'unit4.long'," + wants_an_error),
      only("waits without arm()", make<WaitsUnarmed>(), "wait() without arm()" + wants_an_error),
      only("arms for no backward", make<ArmsForNothing>(),
           "arm(0), for no backward," + wants_an_error),
      only("arms twice", make<ArmsTwice>(), "arm() after arm()" + wants_an_error),
      only("leaves its hooks", make<LeavesItsHooks>(), "keeps its hook when the sharder is gone"),
  };
}

}  // namespace ladder::step6
