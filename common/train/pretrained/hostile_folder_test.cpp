// Folders as no program should write them: each is refused with a file and a reason.
#include <ATen/ops/zeros.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/core/check.hpp"
#include "common/testing/small_pretrained.hpp"
#include "common/testing/temp_folder.hpp"
#include "common/train/pretrained/pretrained_weights.hpp"
#include "common/train/start.hpp"

namespace ladder {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

constexpr const char* kIndex = "model.safetensors.index.json";

class HostileFolderTest : public ::testing::Test {
 protected:
  HostileFolderTest() {
    options_.data.source = "tokens.bin";
    options_.data.vocab_size = 6;
    options_.output.init_from = folder_.path("model");
    fs::create_directory(folder_.path("model"));
    write("config.json", to_text(small_gpt2_config()));
  }

  std::string path(const std::string& name) const { return folder_.path("model/" + name); }
  void write(const std::string& name, const std::string& bytes) const {
    folder_.write("model/" + name, bytes);
  }
  void write_model() const { write_safetensors(path("model.safetensors"), values_); }
  void write_two_shards() const { write_shards(folder_.path("model"), values_, 2); }

  void load_parameters() const {
    std::vector<NamedTensor> parameters;
    for (const Unit& unit : build_layers(options_.model, /*seed=*/2).units())
      parameters.insert(parameters.end(), unit.tensors.begin(), unit.tensors.end());
    const TrainState state{.parameters = whole_tensors(parameters)};
    Start(path("")).load(state, options_.model.tie_embeddings);
  }
  void load() {
    finalize(options_);
    load_parameters();
  }

  template <class... Parts>
  void expect_refused(const Parts&... parts) {
    EXPECT_THAT([&] { load(); }, ThrowsMessage<CheckError>(AllOf(HasSubstr(parts)...)));
  }

  // Writes the index with this file in place of each that it names.
  void expect_shard_refused(const std::string& shard) {
    Json map = Json::object();
    for (const auto& [name, tensor] : values_) map[name] = shard;
    write(kIndex, to_text({{"weight_map", map}}));
    expect_refused(kIndex, "in the same folder");
  }

  TempFolder folder_;
  TrainOptions options_;
  const TensorsByName values_ = random_values(small_gpt2());
};

TEST_F(HostileFolderTest, AFileThatEndsAnywhereIsRefusedByName) {
  write_two_shards();
  EXPECT_NO_THROW(load());
  for (const std::string name :
       {"config.json", kIndex, "model-1.safetensors", "model-2.safetensors"}) {
    const std::string good = read_text_file(path(name));
    for (std::size_t size = good.size(); size-- > 0;) {
      fs::resize_file(path(name), size);
      EXPECT_THAT([&] { name == "config.json" ? finalize(options_) : load_parameters(); },
                  ThrowsMessage<CheckError>(HasSubstr(path(name) + ": ")));
    }
    write(name, good);
  }
  EXPECT_NO_THROW(load());
}

TEST_F(HostileFolderTest, AMissingFileIsNamed) {
  expect_refused(folder_.path("model"), "no weights");
  write("pytorch_model.bin", "x");
  expect_refused("pytorch_model.bin", "save_pretrained");
  write_two_shards();
  fs::remove(path("model-2.safetensors"));
  expect_refused("model-2.safetensors", "cannot be opened");
}

// Deleted after the options were read, or exchanged for another model's.
TEST_F(HostileFolderTest, AFolderThatVanishesIsRefused) {
  write_model();
  finalize(options_);
  write_safetensors(path("model.safetensors"), {{"wte.weight", at::zeros({6, 4})}});
  EXPECT_THROW(load_parameters(), CheckError);
  fs::remove_all(folder_.path("model"));
  EXPECT_THAT([&] { load_parameters(); },
              ThrowsMessage<CheckError>(HasSubstr(folder_.path("model"))));
}

TEST_F(HostileFolderTest, SwappedShardsAreFound) {
  write_two_shards();
  fs::rename(path("model-1.safetensors"), path("x"));
  fs::rename(path("model-2.safetensors"), path("model-1.safetensors"));
  fs::rename(path("x"), path("model-2.safetensors"));
  expect_refused("model-1.safetensors", "are shards swapped");
}

TEST_F(HostileFolderTest, AnIndexNamesFilesInItsOwnFolderOnly) {
  write_safetensors(folder_.path("outside.safetensors"), values_);
  write_safetensors(path("inside.safetensors"), values_);
  for (const std::string& shard :
       {std::string("../outside.safetensors"), folder_.path("outside.safetensors"),
        std::string("./inside.safetensors"), std::string("."), std::string(".."), std::string(),
        std::string(kIndex), std::string("config.json"), std::string("inside.safetensors\0", 19),
        std::string("../model/inside.safetensors")})
    expect_shard_refused(shard);
  fs::create_symlink("../outside.safetensors", path("link.safetensors"));
  Json map = Json::object();
  for (const auto& [name, tensor] : values_) map[name] = "link.safetensors";
  write(kIndex, to_text({{"weight_map", map}}));
  EXPECT_NO_THROW(load());  // a cache of downloads consists of such links
}

TEST_F(HostileFolderTest, AnIndexThatIsNoneIsRefused) {
  for (const char* text :
       {"{}", "[]", "7", R"({"weight_map": {}})", R"({"weight_map": []})",
        R"({"weight_map": null})", R"({"weight_map": {"wte.weight": 7}})",
        R"({"weight_map": {"wte.weight": ["a.safetensors"]}})",
        R"({"weight_map": {"wte.weight": "a.safetensors", "wte.weight": "a.safetensors"}})"}) {
    write(kIndex, text);
    expect_refused(kIndex);
  }
  std::string many = R"({"weight_map": {"a": "a.safetensors")";
  for (int i = 0; i < 20'000; ++i) many += concat(", \"", i, "\": \"a.safetensors\"");
  write(kIndex, many + "}}");
  expect_refused(kIndex, "more than");
  write(kIndex, std::string(std::size_t{5} << 20, ' '));
  expect_refused(kIndex, "bytes");
}

TEST_F(HostileFolderTest, IndexAndShardsMustAgree) {
  write_two_shards();
  const Json good = Json::parse(read_text_file(path(kIndex)));
  Json index = good;
  index["weight_map"]["h.7.ln_1.bias"] = "model-2.safetensors";
  write(kIndex, to_text(index));
  expect_refused("model-2.safetensors", "no tensor \"h.7.ln_1.bias\"");
  index = good;
  index["weight_map"].erase("wte.weight");
  write(kIndex, to_text(index));
  expect_refused("model-2.safetensors", "\"wte.weight\"", "index");
  write(kIndex, to_text(good));
  TensorsByName twice = {{"transformer.wte.weight", values_.at("wte.weight")}};
  write_safetensors(path("model-3.safetensors"), twice);
  index = good;
  index["weight_map"]["transformer.wte.weight"] = "model-3.safetensors";
  write(kIndex, to_text(index));
  expect_refused("model-3.safetensors", "same tensor", "model-2.safetensors");
}

// A header alone, in front of so many bytes.
std::string header(const std::string& json, std::size_t data_bytes) {
  return bytes_of<std::uint64_t>({json.size()}) + json + std::string(data_bytes, '\0');
}

TEST_F(HostileFolderTest, SizesThatDoNotExistAreRefusedWithoutMemoryForThem) {
  for (const char* shape :
       {"[9223372036854775807]", "[9223372036854775808]", "[4294967296,4294967296]", "[-1]",
        "[1e18]", "[2305843009213693952,4]"}) {
    write("model.safetensors", header(concat(R"({"wte.weight":{"dtype":"F32","shape":)", shape,
                                             R"(,"data_offsets":[0,16]}})"),
                                      16));
    expect_refused("model.safetensors");
  }
  write("model.safetensors", bytes_of<std::uint64_t>({~std::uint64_t{0} >> 1}));
  expect_refused("model.safetensors", "header");
  write_model();
  Json config = small_gpt2_config();
  for (const char* name : {"n_layer", "n_head", "n_embd", "n_positions", "vocab_size"}) {
    for (const Json& value : {Json(1'000'000'000'000), Json(2'147'483'647)}) {
      if (std::string(name) == "vocab_size" && value == 2'147'483'647) continue;
      config = small_gpt2_config();
      config[name] = value;
      write("config.json", to_text(config));
      expect_refused("config.json", to_text(value));
    }
  }
  write("config.json", std::string(std::size_t{2} << 20, ' '));
  expect_refused("config.json", "bytes");
}

// As in a clone without Git LFS: only the large files are pointers.
TEST_F(HostileFolderTest, APointerOfGitLfsIsNamed) {
  const std::string pointer = "version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\n";
  write("model.safetensors", pointer);
  expect_refused("model.safetensors", "git lfs pull");
  write("config.json", pointer);
  expect_refused("config.json", "git lfs pull");
  options_.output.init_from = folder_.write("gpt2.bin", pointer);
  expect_refused("gpt2.bin", "git lfs pull");
}

TEST_F(HostileFolderTest, WhatIsNoFileIsRefused) {
  write_model();
  fs::remove(path("config.json"));
  fs::create_directory(path("config.json"));
  expect_refused("config.json", "cannot be opened");
  fs::remove(path("config.json"));
  fs::create_symlink("config.json", path("config.json"));
  expect_refused(folder_.path("model"));  // a link to itself
  fs::remove(path("config.json"));
  fs::create_symlink("/dev/zero", path("config.json"));
  expect_refused("config.json", "cannot be opened");
  fs::remove(path("config.json"));
  write("config.json", to_text(small_gpt2_config()));
  fs::remove(path("model.safetensors"));
  fs::create_directory(path("model.safetensors"));
  expect_refused("model.safetensors", "cannot be opened");
}

}  // namespace
}  // namespace ladder
