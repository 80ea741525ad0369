#include "common/train/pretrained/hugging_face_folder.hpp"

#include <ATen/ops/empty.h>
#include <ATen/ops/equal.h>

#include <algorithm>
#include <set>

#include "common/core/check.hpp"
#include "common/core/json.hpp"
#include "common/core/precision.hpp"
#include "common/train/checkpoint/disk.hpp"

namespace ladder {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kMostTensors = 10'000;         // in an index
constexpr std::uintmax_t kMostIndexBytes = 4 << 20;  // 10,000 names and files take about 1 MB

// Our name of a tensor.
std::string name_of(const std::string& stored) {
  for (const char* prefix : {"transformer.", "model."})
    if (stored.starts_with(prefix)) return stored.substr(std::string_view(prefix).size());
  return stored;
}

// What a model computes itself: the causal mask of each of GPT-2's blocks, rotary frequencies.
bool is_buffer(const std::string& name) {
  return name.ends_with(".attn.bias") || name.ends_with(".attn.masked_bias") ||
         name.ends_with(".rotary_emb.inv_freq");
}

// The files of a folder with the tensors that they should hold; none listed: any.
std::map<std::string, std::vector<std::string>> files_in(const fs::path& folder) {
  const fs::path index = folder / "model.safetensors.index.json";
  std::error_code ignored;
  if (fs::exists(folder / "model.safetensors", ignored)) return {{"model.safetensors", {}}};
  if (fs::exists(index, ignored))
    return parse_weight_index(read_text_file(index, kMostIndexBytes), index);
  for (const char* name : {"pytorch_model.bin", "pytorch_model.bin.index.json"})
    check(!fs::exists(folder / name, ignored), (folder / name).string(),
          ": is a pickle, which can run any code when it is read, so Ladder does not. Convert it "
          "with transformers, if you trust it:\n  python3 -c \"from transformers import "
          "AutoModelForCausalLM as M; M.from_pretrained('",
          folder.string(), "').save_pretrained('NEW_FOLDER')\"");
  throw CheckError(concat(folder.string(),
                          ": holds a config.json, but no weights: neither model.safetensors nor "
                          "model.safetensors.index.json"));
}

}  // namespace

HuggingFaceFolder::HuggingFaceFolder(const fs::path& folder, bool has_tied_head) {
  for (const auto& [name, listed] : files_in(folder)) {
    const std::string path = folder / name;
    files_.push_back({path, SafetensorsReader(path)});
    std::set<std::string> missing(listed.begin(), listed.end());
    for (const StoredTensor& stored : files_.back().reader.tensors()) {
      check(listed.empty() || missing.erase(stored.name) == 1, path, ": holds \"",
            excerpt(stored.name), "\", which the index does not expect in it",
            "; are shards swapped, or from two downloads?");
      add(files_.size() - 1, stored);
    }
    check(missing.empty(), path, ": holds no tensor \"", missing.empty() ? "" : *missing.begin(),
          "\", which the index expects in it; are shards swapped, or from two downloads?");
  }
  if (has_tied_head) drop_tied_head();
}

void HuggingFaceFolder::add(std::size_t file, const StoredTensor& stored) {
  const std::string& path = files_[file].path;
  const std::string name = name_of(stored.name);
  if (is_buffer(name)) return;
  check(stored.dtype == at::kFloat || is_16_bit(stored.dtype), path, ": \"", excerpt(stored.name),
        "\" is ", type_and_shape(stored), ", Ladder reads F32, BF16 and F16");
  const auto [place, is_new] = places_.emplace(name, Place{file, stored});
  check(is_new, path, ": \"", excerpt(stored.name), "\" is the same tensor as \"",
        excerpt(place->second.stored.name), "\" in ", files_[place->second.file].path);
}

// Some programs store a tied head next to the embedding.
void HuggingFaceFolder::drop_tied_head() {
  const auto head = places_.find("lm_head.weight");
  auto embedding = places_.find("wte.weight");
  if (embedding == places_.end()) embedding = places_.find("embed_tokens.weight");
  if (head == places_.end() || embedding == places_.end()) return;
  const std::string& path = files_[head->second.file].path;
  const std::vector<std::int64_t>& shape = head->second.stored.shape;
  check(shape == embedding->second.stored.shape && shape.size() == 2, path,
        ": \"lm_head.weight\" is ", type_and_shape(head->second.stored), ", the embedding is ",
        type_and_shape(embedding->second.stored), ", and config.json says that they are tied");
  constexpr std::int64_t kRowsAtOnce = 64;
  for (std::int64_t row = 0; row < shape[0]; row += kRowsAtOnce) {
    const auto rows_of = [&](const Place& place) {
      const at::Tensor rows =
          at::empty({std::min(kRowsAtOnce, shape[0] - row), shape[1]}, at::kFloat);
      files_[place.file].reader.read_rows(place.stored.name, row, rows);
      return rows;
    };
    check(
        at::equal(rows_of(head->second), rows_of(embedding->second)), path,
        ": \"lm_head.weight\" differs from the embedding, but config.json says that they are tied "
        "(\"tie_word_embeddings\")");
  }
  places_.erase(head);
}

std::vector<PretrainedTensor> HuggingFaceFolder::tensors() const {
  std::vector<PretrainedTensor> tensors;
  for (const auto& [name, place] : places_)
    tensors.push_back({name, place.stored.shape, files_[place.file].path});
  return tensors;
}

void HuggingFaceFolder::read(const std::string& name, const at::Tensor& target) {
  const Place& place = places_.at(name);
  files_[place.file].reader.read_rows(place.stored.name, /*first_row=*/0, target);
}

std::map<std::string, std::vector<std::string>> parse_weight_index(const std::string& text,
                                                                   const std::string& path) {
  const Json index = parse_json(text, path, kMostTensors);
  check(index.is_object() && index.contains("weight_map") && index["weight_map"].is_object() &&
            !index["weight_map"].empty(),
        path, ": has no \"weight_map\", which says which shard holds which tensor");
  std::map<std::string, std::vector<std::string>> files;
  for (const auto& [name, file] : index["weight_map"].items()) {
    check(file.is_string(), path, ": the shard of \"", excerpt(name), "\" is ",
          excerpt(to_text(file)), ", it must be the name of a file");
    const auto shard = file.get<std::string>();
    check(shard.ends_with(".safetensors") && shard.find('/') == std::string::npos &&
              shard.find('\0') == std::string::npos,
          path, ": the shard of \"", excerpt(name), "\" is ", excerpt(to_text(file)),
          ", it must be the name of a .safetensors file in the same folder");
    files[shard].push_back(name);
  }
  return files;
}

}  // namespace ladder
