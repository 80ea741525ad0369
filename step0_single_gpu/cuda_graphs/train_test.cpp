// Without a GPU. tests/gpu trains.
#include "step0_single_gpu/cuda_graphs/train.hpp"
#include "common/testing/expect_throws.hpp"

#include "common/testing/parse_options.hpp"

namespace ladder {
namespace {

StateBytes held(const std::vector<const char*>& words) {
  const Trainer trainer = cuda_graphs::trainer();
  return trainer.state_bytes(parse_words(trainer, words).options, 1, 0);
}

TEST(CudaGraphs, AreForGpus) {
  EXPECT_EQ(held({}).parameters, held({"--device", "cuda"}).parameters);
  expect_throws<UsageError>([] { held({"--device", "cpu"}); }, {"--device is cpu"});
  expect_throws<UsageError>(
      [] {
        held({"--recompute", "blocks"});
      },
      {"--recompute blocks", "--recompute cheap"});
  EXPECT_EQ(held({"--recompute", "cheap"}).parameters, held({}).parameters);
}

}  // namespace
}  // namespace ladder
