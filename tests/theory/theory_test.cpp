// A program that is linked without libtorch says what the trainers say.
#include <gtest/gtest.h>

#include <filesystem>
#include <regex>
#include <string>
#include <utility>
#include <vector>

#include "common/testing/process_test.hpp"

namespace ladder {
namespace {

class TheoryTest : public ProcessTest {
 protected:
  // What trainer and theory print, and their exit codes, must be equal. Returns whether it is an
  // answer, and no refusal.
  bool agree(const std::string& folder, const std::string& options) {
    const std::string name = std::filesystem::path(folder).filename();
    const std::string all = "--json " + options;
    Program trained = start(trainer(folder) + all);
    Program theory = start(one_word(LADDER_THEORY) + " " + name + " " + all);
    const int code = trained.wait();
    EXPECT_EQ(theory.wait(), code) << name << " " << options;
    EXPECT_EQ(without_cpu(theory.output()), without_cpu(trained.output()))
        << name << " " << options;
    return code == 0;
  }

  const std::vector<std::string> folders_ = words(LADDER_TRAINERS);  // steps first

 private:
  // libtorch alone knows which of its libraries multiplies faster on this CPU.
  static std::string without_cpu(const std::string& json) {
    return std::regex_replace(json, std::regex("\"products\":\"(blas|onednn)\""), "");
  }
};

TEST_F(TheoryTest, SaysWhatEachTrainerSays) {
  EXPECT_GE(folders_.size(), 14u);  // without ZeroMQ, there is no elastic
  for (const std::string& folder : folders_) {
    int num_answers = 0;
    for (const char* const options :
         {"--dry-run 4", "--dry-run 1 --model mistral --layers 3 --precision bf16",
          "--dry-run 6 --model qwen3 --kv-heads 2 --head-channels 16 --vocab-size 1031 --layers 7 "
          "--num-microbatches 6 --precision fp16 --grad-dtype fp16",
          "--dry-run 1 --device cuda --recompute cheap --product-parts 2",
          "--dry-run 8 --ranks-per-machine 4 --model smollm2-135m --context 64 --steps 40 "
          "--num-microbatches 8 --optimizer sgd",
          "--dry-run 1 --model olmo2 --tie-embeddings false", "--dry-run 4 --layer 3"}) {
      num_answers += agree(folder, options);
    }
    EXPECT_GE(num_answers, folder.ends_with("cuda_graphs") ? 1 : 2) << folder;
  }
}

TEST_F(TheoryTest, SaysItOfTheirOwnOptions) {
  const std::vector<std::pair<const char*, const char*>> cases = {
      {"step0", "--dry-run 1 --simulate-ranks 3"},
      {"step4", "--dry-run 4 --bucket-mb 0.1"},
      {"step6", "--dry-run 4 --shard-ranks 2 --num-microbatches 3"},
      {"step7", "--dry-run 4 --prefetch 2 --shard-ranks 2"},
      {"step8",
       "--dry-run 4 --layers 8 --pipeline-schedule interleaved --chunks-per-stage 2 "
       "--num-microbatches 8"},
      {"step8", "--dry-run 4 --pipeline-stages 2 --pipeline-schedule zero-bubble"},
      {"objectives", "--dry-run 4 --pipeline-stages 2 --objective dpo --dpo-reference anywhere"},
      {"objectives", "--dry-run 4 --objective self_distillation"},
      {"tensor_parallel", "--dry-run 4 --tensor-ranks 4 --model llama"},
      {"tensor_parallel",
       "--dry-run 8 --tensor-ranks 2 --pipeline-stages 2 --num-microbatches 2 "
       "--sequence-parallel true --recompute blocks"},
      {"step9", "--dry-run 4 --fragments 2 --sync-delay 3"},
      {"step9", "--dry-run 3 --wire int8"}};
  for (const auto& [name, options] : cases) {
    const auto folder = std::ranges::find_if(folders_, [name = name](const std::string& each) {
      return each.starts_with(concat(name, "_")) || each.ends_with(concat("/", name));
    });
    ASSERT_NE(folder, folders_.end()) << name;
    EXPECT_TRUE(agree(*folder, options)) << options;
  }
}

}  // namespace
}  // namespace ladder
