// Models of other programs in real processes: every step starts from the same folder, on any number
// of ranks, and what it saves is exported to the same folder again. A folder that is damaged ends
// all ranks.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "common/core/check.hpp"
#include "common/testing/program.hpp"
#include "common/testing/small_pretrained.hpp"
#include "common/testing/temp_folder.hpp"

namespace ladder {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

const std::vector<std::string> kSteps = words(LADDER_STEPS);

class Pretrained : public ::testing::Test {
 protected:
  Pretrained() {
    const auto write = [&](const std::string& name, Json config, const char* layers,
                           ModelOptions model, const std::string& prefix) {
      config["vocab_size"] = model.vocab_size = 258;  // that text read as bytes needs
      config[layers] = model.layers = 3;              // a block for each stage
      fs::create_directory(folder_.path(name));
      folder_.write(name + "/config.json", to_text(config));
      write_shards(folder_.path(name), with_prefix(prefix, random_values(model)), 3);
    };
    write("gpt2", small_gpt2_config(), "n_layer", small_gpt2(), "transformer.");
    write("llama", small_llama_config(), "num_hidden_layers", small_llama(), "model.");
  }

  static std::string program(const std::string& name) {
    return one_word(concat(LADDER_BUILD, "/", name));
  }
  static std::string trainer(const std::string& step, const std::string& options) {
    return concat(program(step + "/" + step), " --context 4 --steps 0 --tokenizer bytes ",
                  step == "step9_diloco" ? "--sync-every 4 --fragments 2 --sync-delay 1 " : "",
                  options);
  }
  ProgramResult run(const std::string& command) const {
    return run_program(words(command), folder_.path());
  }
  std::string contents(const std::string& name) const { return read_text_file(folder_.path(name)); }

  TempFolder folder_;
};

TEST_F(Pretrained, EveryStepStartsFromAndExportsTheSameModel) {
  for (const std::string family : {"gpt2", "llama"}) {
    for (const std::string& step : kSteps) {
      const int ranks = step == kSteps[0] ? 1 : 3;
      SCOPED_TRACE(concat(family, " in ", step, " on ", ranks, " ranks"));
      const std::string out = family + step, exported = out + "_exported";
      const ProgramResult trained =
          run(trainer(step, concat("--transport threads --ranks ", ranks, " --init-from ", family,
                                   " --out ", out)));
      ASSERT_EQ(trained.exit_code, 0) << trained.output;
      EXPECT_THAT(trained.output, HasSubstr("starting from the parameters of " + family));
      const ProgramResult written =
          run(concat(program("common/train/ladder_export"), " ", out, " ", exported));
      ASSERT_EQ(written.exit_code, 0) << written.output;
      const std::string first = family + kSteps[0] + "_exported/";
      for (const char* file : {"config.json", "model.safetensors", "tokenizer.json"})
        EXPECT_EQ(contents(exported + "/" + file), contents(first + file)) << file;
    }
    // The export and the run itself tell the shape.
    const std::string saved = "/checkpoints/step_000000/model.safetensors";
    const std::string start = family + kSteps[0];
    for (const std::string& from : {start, start + "_exported"}) {
      const std::string again = from + "_again";
      const ProgramResult result =
          run(trainer(kSteps[0], concat("--init-from ", from, " --quiet --out ", again)));
      ASSERT_EQ(result.exit_code, 0) << result.output;
      EXPECT_EQ(contents(again + saved), contents(start + saved));
    }
  }
}

// Under mpirun, whose ranks read the files each for itself.
TEST_F(Pretrained, ADamagedFolderEndsAllRanksWithOneMessage) {
  const auto expect = [&](int exit_code, const std::string& options, const std::string& reason) {
    const ProgramResult result =
        run(concat(mpi_launch(LADDER_MPIEXEC), "-n 3 ",
                   trainer("step7_zero3", "--init-from gpt2 --out run " + options)));
    EXPECT_EQ(result.exit_code, exit_code) << result.output;
    EXPECT_THAT(result.output, AllOf(HasSubstr("rank 0: error: "), HasSubstr(reason),
                                     Not(HasSubstr("rank 1: error: "))));
    EXPECT_FALSE(fs::exists(folder_.path("run/checkpoints")));
    fs::remove_all(folder_.path("run"));
  };
  expect(2, "--layers 2", "--layers 2 contradicts gpt2/config.json");
  fs::resize_file(folder_.path("gpt2/model-3.safetensors"), 700);
  expect(1, "", "gpt2/model-3.safetensors: ");
  fs::remove(folder_.path("gpt2/model-2.safetensors"));
  expect(1, "", "gpt2/model-2.safetensors: cannot be opened");
  fs::resize_file(folder_.path("gpt2/config.json"), 20);
  expect(1, "", "gpt2/config.json: not valid JSON");
  fs::remove_all(folder_.path("gpt2"));
  expect(2, "--data ids.bin", "--init-from gpt2: no such file or folder");
}

TEST_F(Pretrained, ExportSaysWhatIsWrong) {
  ASSERT_EQ(run(trainer(kSteps[0], "--init-from gpt2 --quiet --out run")).exit_code, 0);
  const auto expect = [&](int exit_code, const std::string& options, const std::string& reason) {
    const ProgramResult result = run(program("common/train/ladder_export") + " " + options);
    EXPECT_EQ(result.exit_code, exit_code) << result.output;
    EXPECT_THAT(result.output, HasSubstr(reason));
  };
  expect(0, "--help", "--dtype fp32|bf16|fp16");
  expect(0, "run exported --dtype bf16", "exported");
  expect(0, "run/checkpoints/step_000000 again", "again");
  expect(2, "run exported", "exported already exists");
  expect(2, "run new --dtype bf8", "--dtype is 'bf8'");
  expect(2, "run", "FOLDER is required");
  expect(1, "nowhere new", "nowhere: no such folder");
  expect(1, "gpt2 new", "gpt2: holds neither a checkpoint");
  EXPECT_FALSE(fs::exists(folder_.path("new")));
}

}  // namespace
}  // namespace ladder
