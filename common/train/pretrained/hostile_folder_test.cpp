// Folders as no program should write them: each is refused with a file and a reason.
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include "common/core/check.hpp"
#include "common/testing/expect_throws.hpp"
#include "common/testing/small_pretrained.hpp"

namespace ladder {
namespace {

namespace fs = std::filesystem;

constexpr const char* kIndex = "model.safetensors.index.json";

class HostileFolderTest : public PretrainedFolderTest {
 protected:
  std::string path(const std::string& name) const { return folder_.path(name); }
  void write_two_shards() const { write_shards(folder_.path(), values_, 2); }
  // An index that names this file for each tensor.
  void write_index(const std::string& shard) {
    Json map = Json::object();
    for (const auto& [name, tensor] : values_) map[name] = shard;
    folder_.write(kIndex, to_text({{"weight_map", map}}));
  }
};

TEST_F(HostileFolderTest, AFileThatEndsAnywhereIsRefusedByName) {
  write_two_shards();
  EXPECT_NO_THROW(load());
  finalize(options_);
  for (const std::string name :
       {"config.json", kIndex, "model-1.safetensors", "model-2.safetensors"}) {
    const std::string good = read_text_file(path(name));
    for (std::size_t cut = 1; cut <= good.size(); cut += cut < 40 ? 1 : 5) {
      const std::size_t size = good.size() - cut;
      fs::resize_file(path(name), size);
      expect_throws<CheckError>(
          [&] {
            name == "config.json" ? finalize(options_) : static_cast<void>(load_parameters());
          },
          {path(name) + ": "});
    }
    folder_.write(name, good);
  }
  EXPECT_NO_THROW(load());
}

TEST_F(HostileFolderTest, AMissingFileIsNamed) {
  expect_refused<CheckError>(folder_.path().string(), "no weights");
  folder_.write("pytorch_model.bin", "x");
  expect_refused<CheckError>("pytorch_model.bin", "save_pretrained");
  write_two_shards();
  fs::remove(path("model-2.safetensors"));
  expect_refused<CheckError>("model-2.safetensors", "cannot be opened");
}

// Deleted after the options were read, or exchanged for another model's.
TEST_F(HostileFolderTest, AFolderThatVanishesIsRefused) {
  write_model(values_);
  finalize(options_);
  write_safetensors(path("model.safetensors"), {{"wte.weight", at::zeros({6, 4})}});
  EXPECT_THROW(load_parameters(), CheckError);
  fs::remove_all(folder_.path());
  expect_throws<CheckError>([&] { load_parameters(); }, {folder_.path().string()});
}

TEST_F(HostileFolderTest, SwappedShardsAreFound) {
  write_two_shards();
  fs::rename(path("model-1.safetensors"), path("x"));
  fs::rename(path("model-2.safetensors"), path("model-1.safetensors"));
  fs::rename(path("x"), path("model-2.safetensors"));
  expect_refused<CheckError>("model-1.safetensors", "are shards swapped");
}

TEST_F(HostileFolderTest, AnIndexNamesFilesInItsOwnFolderOnly) {
  const TempFolder elsewhere;
  const std::string outside = elsewhere.path("outside.safetensors");
  const fs::path relative = fs::path("..") / elsewhere.path().filename() / "outside.safetensors";
  write_safetensors(outside, values_);
  write_safetensors(path("inside.safetensors"), values_);
  for (const std::string& shard :
       {relative.string(), outside, std::string("./inside.safetensors"), std::string("."),
        std::string(".."), std::string(), std::string(kIndex), std::string("config.json"),
        std::string("inside.safetensors\0", 19),
        concat("../", folder_.path().filename().string(), "/inside.safetensors")}) {
    write_index(shard);
    expect_refused<CheckError>(kIndex, "in the same folder");
  }
  fs::create_symlink(relative, path("link.safetensors"));
  write_index("link.safetensors");
  EXPECT_NO_THROW(load());  // a cache of downloads consists of such links
}

TEST_F(HostileFolderTest, AnIndexThatIsNoneIsRefused) {
  for (const char* text :
       {"{}", "[]", "7", R"({"weight_map": {}})", R"({"weight_map": []})",
        R"({"weight_map": null})", R"({"weight_map": {"wte.weight": 7}})",
        R"({"weight_map": {"wte.weight": ["a.safetensors"]}})",
        R"({"weight_map": {"wte.weight": "a.safetensors", "wte.weight": "a.safetensors"}})"}) {
    folder_.write(kIndex, text);
    expect_refused<CheckError>(kIndex);
  }
  std::string many = R"({"weight_map": {"a": "a.safetensors")";
  for (int i = 0; i < 20'000; ++i) many += concat(", \"", i, "\": \"a.safetensors\"");
  folder_.write(kIndex, many + "}}");
  expect_refused<CheckError>(kIndex, "more than");
  folder_.write(kIndex, std::string(std::size_t{5} << 20, ' '));
  expect_refused<CheckError>(kIndex, "bytes");
}

TEST_F(HostileFolderTest, IndexAndShardsMustAgree) {
  write_two_shards();
  const Json good = Json::parse(read_text_file(path(kIndex)));
  Json index = good;
  index["weight_map"]["h.7.ln_1.bias"] = "model-2.safetensors";
  folder_.write(kIndex, to_text(index));
  expect_refused<CheckError>("model-2.safetensors", "no tensor \"h.7.ln_1.bias\"");
  index = good;
  index["weight_map"].erase("wte.weight");
  folder_.write(kIndex, to_text(index));
  expect_refused<CheckError>("model-2.safetensors", "\"wte.weight\"", "index");
  folder_.write(kIndex, to_text(good));
  TensorsByName twice = {{"transformer.wte.weight", values_.at("wte.weight")}};
  write_safetensors(path("model-3.safetensors"), twice);
  index = good;
  index["weight_map"]["transformer.wte.weight"] = "model-3.safetensors";
  folder_.write(kIndex, to_text(index));
  expect_refused<CheckError>("model-3.safetensors", "same tensor", "model-2.safetensors");
}

// The file's fault, not that of the user, who has given no such option.
TEST_F(HostileFolderTest, AShapeThatNoOptionMayHaveIsRefused) {
  for (const char* name : {"n_layer", "n_head", "n_embd", "n_positions"}) {
    Json config = small_gpt2_config();
    config[name] = 2'147'483'647;
    write_config(config);
    expect_refused<CheckError>("config.json", "2147483647");
  }
}

// As in a clone without Git LFS: only the large files are pointers.
TEST_F(HostileFolderTest, APointerOfGitLfsIsNamed) {
  const std::string pointer = "version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\n";
  folder_.write("model.safetensors", pointer);
  expect_refused<CheckError>("model.safetensors", "git lfs pull");
  folder_.write("config.json", pointer);
  expect_refused<CheckError>("config.json", "git lfs pull");
  options_.output.init_from = folder_.write("gpt2.bin", pointer);
  expect_refused<CheckError>("gpt2.bin", "git lfs pull");
}

TEST_F(HostileFolderTest, WhatIsNoFileIsRefused) {
  write_model(values_);
  fs::remove(path("config.json"));
  fs::create_directory(path("config.json"));
  expect_refused<CheckError>("config.json", "cannot be opened");
  fs::remove(path("config.json"));
  fs::create_symlink("config.json", path("config.json"));
  expect_refused<CheckError>(folder_.path().string());  // a link to itself
  fs::remove(path("config.json"));
  fs::create_symlink("/dev/zero", path("config.json"));
  expect_refused<CheckError>("config.json", "cannot be opened");
  fs::remove(path("config.json"));
  folder_.write("config.json", std::string(std::size_t{2} << 20, ' '));
  expect_refused<CheckError>("config.json", "bytes");
  write_config(small_gpt2_config());
  fs::remove(path("model.safetensors"));
  fs::create_directory(path("model.safetensors"));
  expect_refused<CheckError>("model.safetensors", "cannot be opened");
}

}  // namespace
}  // namespace ladder
