// Without a GPU. tests/gpu trains.
#include "step0_single_gpu/cuda_graphs/train.hpp"

#include "common/testing/parse_options.hpp"

namespace ladder {
namespace {

using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

StateBytes held(const std::vector<const char*>& words) {
  const Trainer trainer = cuda_graphs::trainer();
  return trainer.state_bytes(parse_words(trainer, words).options, 1, 0);
}

TEST(CudaGraphs, AreForGpus) {
  EXPECT_EQ(held({}).parameters, held({"--device", "cuda"}).parameters);
  EXPECT_THAT(
      [] {
        held({"--device", "cpu"});
      },
      ThrowsMessage<UsageError>(HasSubstr("--device is cpu")));
}

}  // namespace
}  // namespace ladder
