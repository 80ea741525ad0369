// Models of other programs in real processes: every step starts from the same folder, on any number
// of ranks, and what it saves is exported to the same folder again. A folder that is damaged ends
// all ranks.
#include "common/testing/process_test.hpp"
#include "common/testing/small_pretrained.hpp"

namespace ladder {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;
using ::testing::Not;

const std::vector<std::string> kSteps = words(LADDER_STEPS);

class Pretrained : public ProcessTest {
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
    Json llama = small_llama_config();
    llama["max_position_embeddings"] = 16;  // of which the runs train with 4
    write("llama", llama, "num_hidden_layers", small_llama(), "model.");
  }

  static std::string training(const std::string& step, const std::string& options) {
    return concat(trainer(step), "--context 4 --steps 0 --tokenizer bytes ", rounds_of(step),
                  options);
  }
  static std::string exporting(const std::string& options) {
    return one_word(LADDER_BUILD "/common/train/ladder_export") + " " + options;
  }
  std::string contents(const std::string& name) const { return read_text_file(folder_.path(name)); }
};

TEST_F(Pretrained, EveryStepStartsFromAndExportsTheSameModel) {
  for (const std::string family : {"gpt2", "llama"}) {
    for (const std::string& step : kSteps) {
      const std::string out = family + step, exported = out + "_exported";
      run(training(step, concat("--transport threads --ranks ", step == kSteps[0] ? 1 : 3,
                                " --init-from ", family, " --out ", out)),
          0, {"starting from the parameters of " + family});
      run(exporting(out + " " + exported));
      const std::string first = family + kSteps[0] + "_exported/";
      for (const char* file : {"config.json", "model.safetensors", "tokenizer.json"})
        EXPECT_EQ(contents(exported + "/" + file), contents(first + file)) << step << " " << file;
    }
    // The export and the run itself tell the shape.
    const std::string saved = "/checkpoints/step_000000/model.safetensors";
    const std::string first = family + kSteps[0];
    for (const std::string& from : {first, first + "_exported"}) {
      const std::string again = from + "_again";
      run(training(kSteps[0], concat("--init-from ", from, " --quiet --out ", again)));
      EXPECT_EQ(contents(again + saved), contents(first + saved));
      run(exporting(again + " " + again + "_exported"));
      EXPECT_EQ(contents(again + "_exported/config.json"),
                contents(first + "_exported/config.json"));
    }
    EXPECT_THAT(
        contents(first + "_exported/config.json"),
        HasSubstr(family == "llama" ? "\"max_position_embeddings\": 16" : "\"n_positions\": 4"));
  }
}

// Under mpirun, whose ranks read the files each for itself.
TEST_F(Pretrained, ADamagedFolderEndsAllRanksWithOneMessage) {
  const auto expect = [&](int exit_code, const std::string& options, const std::string& reason) {
    EXPECT_THAT(run(mpirun(3) + training("step7_zero3", "--init-from gpt2 --out run " + options),
                    exit_code, {"rank 0: error: ", reason}),
                Not(HasSubstr("rank 1: error: ")));
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
  run(training(kSteps[0], "--init-from gpt2 --quiet --out run"));
  const auto expect = [&](int exit_code, const std::string& options, const std::string& reason) {
    run(exporting(options), exit_code, {reason});
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
