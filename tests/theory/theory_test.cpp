// A program that is linked without libtorch says what the trainers say.
#include <gtest/gtest.h>

#include <filesystem>
#include <string>
#include <vector>

#include "common/testing/process_test.hpp"

namespace ladder {
namespace {

class TheoryTest : public ProcessTest {
 protected:
  // What trainer and theory print, and their exit codes, must be equal. Returns whether it is an
  // answer, and no refusal.
  bool agree(const std::string& folder, const std::string& words) {
    const std::string name = std::filesystem::path(folder).filename();
    const std::string all = "--json --products onednn " + words;
    Program trained = start(trainer(folder) + all);
    Program theory = start(one_word(LADDER_THEORY) + " " + name + " " + all);
    const int code = trained.wait();
    EXPECT_EQ(theory.wait(), code) << name << " " << words;
    EXPECT_EQ(theory.output(), trained.output()) << name << " " << words;
    return code == 0;
  }
};

TEST_F(TheoryTest, SaysWhatEachTrainerSays) {
  const std::vector<std::string> folders = words(LADDER_TRAINERS);
  EXPECT_GE(folders.size(), 14u);  // without ZeroMQ, there is no elastic
  for (const std::string& folder : folders) {
    int num_answers = 0;
    for (const char* const options :
         {"--dry-run 4", "--dry-run 1 --precision bf16",
          "--dry-run 4 --model llama --kv-heads 2 --precision fp16 --grad-dtype fp16 --layers 6",
          "--dry-run 6 --device cuda --model qwen3 --heads 4 --head-channels 16 --vocab-size 1031 "
          "--num-microbatches 6 --layers 7",
          "--dry-run 1 --device cuda --recompute cheap",
          "--dry-run 4 --model olmo2 --recompute cheap --optimizer sgd",
          "--dry-run 8 --ranks-per-machine 4 --model smollm2-135m --context 64 --steps 40 "
          "--num-microbatches 8",
          "--dry-run 2 --product-parts 4 --tie-embeddings false",
          "--dry-run 4 --channels 127", "--dry-run 4 --layer 3"}) {
      num_answers += agree(folder, options);
    }
    EXPECT_GE(num_answers, 2) << folder;
  }
}

TEST_F(TheoryTest, SaysItOfTheirOwnOptions) {
  const std::vector<std::pair<const char*, const char*>> cases = {
      {"step0_single_gpu", "--dry-run 1 --simulate-ranks 3"},
      {"step4_bucketed_ddp", "--dry-run 4 --bucket-mb 0.1"},
      {"step6_zero2", "--dry-run 4 --shard-ranks 2 --num-microbatches 3"},
      {"step7_zero3", "--dry-run 4 --prefetch 2 --shard-ranks 2"},
      {"step8_pipeline_ga", "--dry-run 4 --layers 8 --pipeline-schedule interleaved "
                            "--chunks-per-stage 2 --num-microbatches 8"},
      {"step8_pipeline_ga", "--dry-run 4 --pipeline-stages 2 --pipeline-schedule zero-bubble"},
      {"step8_pipeline_ga/objectives", "--dry-run 4 --pipeline-stages 2 --objective dpo"},
      {"step8_pipeline_ga/objectives", "--dry-run 4 --objective self-distillation"},
      {"step8_pipeline_ga/tensor_parallel", "--dry-run 4 --tensor-ranks 4 --model llama"},
      {"step8_pipeline_ga/tensor_parallel",
       "--dry-run 8 --tensor-ranks 2 --pipeline-stages 2 --num-microbatches 2 "
       "--sequence-parallel true --recompute blocks"},
      {"step9_diloco", "--dry-run 4 --fragments 2 --sync-delay 3"},
      {"step9_diloco", "--dry-run 3 --wire int8"}};
  for (const auto& [folder, words] : cases) EXPECT_TRUE(agree(folder, words)) << words;
}

}  // namespace
}  // namespace ladder
