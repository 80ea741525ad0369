// What the grader must reject: each for the reason given.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "common/testing/wrong_answer.hpp"
#include "step7_zero3/exercise/wrong_models.hpp"

namespace ladder::step7 {

template <class SomeModel>
MakeModel make() {
  return [](const ModelBuilder& build, int prefetch, Communicator& comm) {
    const auto model = std::make_shared<SomeModel>(build, prefetch, comm);
    return ModelAttempt{[model](const at::Tensor& tokens) { return model->forward(tokens); },
                        model->leaves(), model->plan()};
  };
}

// Where nothing else is said, prefetch 0: unit u is the (u+1)-th that is gathered.
inline std::vector<WrongAnswer<MakeModel>> wrong_answers() {
  const std::string in_order = "what a microbatch gathers, in this order, is ( ";
  const std::string forward = "embedding block0 block1 block2 head ";
  const std::string backward = "block2 block1 block0 ";
  const std::string all = "( " + forward + backward + ")";
  const std::string bytes = "the number of bytes of parameters beside the shard ";
  const std::string started = "the number of gathers that have been started when the ";
  // Nothing else finds it.
  const auto only = [](const std::string& name, const MakeModel& attempt,
                       const std::string& reason) {
    return WrongAnswer<MakeModel>{name, attempt, 1, reason, reason};
  };
  return {
      {"all at the start", make<AllAtStart>(), 1,
       started + "forward of embedding begins is 5, not 1"},
      {"ignores prefetch", make<IgnoresPrefetch>(), 1,
       "untied, prefetch 1: " + started + "backward of block1 begins is 7, not 8"},
      {"too far ahead", make<TooFarAhead>(), 1,
       "untied, prefetch 0: " + started + "forward of block0 begins is 3, not 2"},
      {"waits at once", make<WaitsAtOnce>(), 1,
       "that have been waited for when the forward of embedding begins is 2, not 1"},
      {"odd ranks backwards", make<OddRanksBackwards>(), 2, "would wait for each other forever"},

      {"forgets backward", make<ForgetsBackward>(), 1,
       "the backward of block2 reads memory that is gone"},
      {"gathers the embedding again", make<GathersTheEmbeddingAgain>(), 1,
       "untied, prefetch 0: " + in_order + forward + backward + "embedding ), not " + all},
      {"forgets the tied embedding", make<ForgetsTheTiedEmbedding>(), 1,
       "tied, prefetch 1: the backward of head reads memory that is gone: the tied weight",
       "tied, prefetch 1: "},
      {"forgets the head", make<ForgetsTheHead>(), 1,
       "untied, prefetch 1: the backward of head reads memory that is gone",
       "untied, prefetch 1: "},
      {"gathers by an all-reduce", make<GathersByAllReduce>(), 2,
       "the number of bytes that a step of 2 microbatches sends is "},
      only("gathers to be made", make<GathersToBeMade>(),
           "the number of collectives that the constructor calls is 1, not 0"),

      {"never reshards", make<NeverReshards>(), 1, bytes + "at the most is "},
      {"keeps the blocks", make<KeepsBlocks>(), 1, in_order + forward + "), not " + all},
      {"drops the head", make<DropsTheHead>(), 1,
       in_order + forward + "head " + backward + "), not " + all},
      {"drops the tied embedding", make<DropsTheTied>(), 1,
       "tied, prefetch 0: the forward of head reads memory that is gone: the tied weight"},
      {"gathers the tied embedding again", make<GathersTheTiedAgain>(), 1,
       "tied, prefetch 0: " + in_order + forward + "embedding " + backward + "), not " + all},
      {"keeps the tied embedding too long", make<KeepsTheTiedTooLong>(), 1,
       "tied, prefetch 0: " + bytes + "when the backward of block2 begins is ",
       bytes + "when the backward of block"},
      {"leaves the first block whole", make<LeavesTheFirstBlock>(), 1,
       bytes + "after a backward is "},
      {"keeps what evaluation gathered", make<EvaluationKeeps>(), 1,
       bytes + "after a forward without gradients, which no backward follows, is "},
      only("trusts what is left", make<TrustsWhatIsLeft>(),
           "what an evaluation between a forward and its backward gathers, in this order, is ( "),

      only("hooks what needs no gradient", make<HooksWhatNeedsNoGradient>(),
           "a frozen embedding: "),
      only("accepts any prefetch", make<AcceptsAnyPrefetch>(),
           "ShardedModel with prefetch -1 says nothing; expected a CheckError"),
  };
}

}  // namespace ladder::step7
