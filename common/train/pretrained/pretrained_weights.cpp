#include "common/train/pretrained/pretrained_weights.hpp"

#include <ATen/ops/empty.h>
#include <ATen/ops/equal.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <nlohmann/json.hpp>
#include <set>

#include "common/core/check.hpp"
#include "common/core/json.hpp"
#include "common/core/torch_types.hpp"
#include "common/data/mapped_file.hpp"
#include "common/train/checkpoint/disk.hpp"
#include "common/train/checkpoint/safetensors.hpp"

namespace ladder {

namespace fs = std::filesystem;

namespace {

constexpr std::size_t kMostTensors = 10'000;         // in an index
constexpr std::uintmax_t kMostIndexBytes = 4 << 20;  // 10,000 names and files take about 1 MB

// Our name of a tensor.
std::string name_of(const std::string& stored) {
  for (const ModelFamily family : all_families()) {
    const std::string prefix = traits_of(family).prefix();
    if (!prefix.empty() && stored.starts_with(prefix)) return stored.substr(prefix.size());
  }
  return stored;
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

HuggingFaceFolder::HuggingFaceFolder(const fs::path& folder, ModelFamily family, bool has_tied_head)
    : traits_(traits_of(family)) {
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
  if (traits_.is_buffer(name)) return;
  check(stored.dtype == at::kFloat || is_16_bit(stored.dtype), path, ": \"", excerpt(stored.name),
        "\" is ", type_and_shape(stored), ", Ladder reads F32, BF16 and F16");
  const auto [place, is_new] = places_.emplace(name, Place{file, stored});
  check(is_new, path, ": \"", excerpt(stored.name), "\" is the same tensor as \"",
        excerpt(place->second.stored.name), "\" in ", files_[place->second.file].path);
}

// Some programs store a tied head next to the embedding, and some instead of it.
void HuggingFaceFolder::drop_tied_head() {
  const auto head = places_.find("lm_head.weight");
  if (head == places_.end()) return;
  const char* name = traits_.embedding_name();
  const auto embedding = places_.find(name);
  if (embedding == places_.end()) {
    places_[name] = head->second;
    places_.erase(head);
    return;
  }
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

std::vector<FoundTensor> HuggingFaceFolder::tensors() const {
  std::vector<FoundTensor> tensors;
  for (const auto& [name, place] : places_)
    tensors.push_back({{name, place.stored.dtype, place.stored.shape}, files_[place.file].path});
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

namespace {

constexpr std::int32_t kLlmCMagic = 20240326;
constexpr std::array<std::int32_t, 2> kTokenMagics = {20240520, 20240801};
constexpr std::int64_t kLlmCHeaderBytes = 256 * sizeof(std::int32_t);
constexpr std::int32_t kMostExtent = 1 << 18;  // of vocabulary and channels: no product overflows
constexpr std::int32_t kMostLayersOfFile = 1 << 16;

}  // namespace

LlmCFile::LlmCFile(const fs::path& path) : path_(path), file_(path, std::ios::binary) {
  std::error_code error;
  const auto num_bytes = static_cast<std::int64_t>(fs::file_size(path, error));
  check(!error && file_.good(), path_,
        ": cannot be opened: ", error ? error.message() : std::strerror(errno));
  refuse_lfs_pointer(path_);
  check(num_bytes >= kLlmCHeaderBytes, path_, ": is no checkpoint of llm.c: ", num_bytes,
        " bytes are too few");
  read_words();
  const std::int64_t C = model_.channels;
  const std::int64_t numel =
      (padded_vocab_ + model_.context) * C + model_.layers * (12 * C * C + 13 * C) + 2 * C;
  const auto needed = kLlmCHeaderBytes + numel * static_cast<std::int64_t>(c10::elementSize(type_));
  check(num_bytes == needed, path_, ": has ", num_bytes, " bytes, but a model of ", model_.layers,
        " layers, ", C, " channels, ", padded_vocab_, " embeddings and ", model_.context,
        " positions needs ", needed);
  end_ = kLlmCHeaderBytes;
  place("wte.weight", {padded_vocab_, C});
  places_.at("wte.weight").shape[0] = model_.vocab_size;
  place("wpe.weight", {model_.context, C});
  place("h.*.ln_1.weight", {C});
  place("h.*.ln_1.bias", {C});
  place("h.*.attn.c_attn.weight", {C, 3 * C}, /*is_transposed=*/true);
  place("h.*.attn.c_attn.bias", {3 * C});
  place("h.*.attn.c_proj.weight", {C, C}, /*is_transposed=*/true);
  place("h.*.attn.c_proj.bias", {C});
  place("h.*.ln_2.weight", {C});
  place("h.*.ln_2.bias", {C});
  place("h.*.mlp.c_fc.weight", {C, 4 * C}, /*is_transposed=*/true);
  place("h.*.mlp.c_fc.bias", {4 * C});
  place("h.*.mlp.c_proj.weight", {4 * C, C}, /*is_transposed=*/true);
  place("h.*.mlp.c_proj.bias", {C});
  place("ln_f.weight", {C});
  place("ln_f.bias", {C});
}

void LlmCFile::read_words() {
  std::array<std::int32_t, 256> words = {};  // little-endian, like the machines we run on
  file_.read(reinterpret_cast<char*>(words.data()), kLlmCHeaderBytes);
  check(file_.good(), path_, ": cannot be read: ", std::strerror(errno));
  const std::int32_t magic = words[0], version = words[1], context = words[2],
                     vocab_size = words[3], layers = words[4], heads = words[5],
                     channels = words[6], padded = words[7];
  for (const std::int32_t tokens : kTokenMagics)
    check(magic != tokens, path_, ": holds tokens, not a model: give it as --data");
  check(magic == kLlmCMagic, path_, ": is no checkpoint of llm.c: it begins with ", magic, ", not ",
        kLlmCMagic,
        "; of a Hugging Face model, name the folder; of nanoGPT's ckpt.pt, "
        "scripts/from_nanogpt.py makes one");
  check(version == 3 || version == 5, path_, ": has version ", version,
        " of llm.c's format, Ladder reads 3 (fp32) and 5 (bf16)");
  for (const std::int32_t extent : {context, vocab_size, layers, heads, channels, padded})
    check(extent > 0 && extent <= kMostExtent && layers <= kMostLayersOfFile, path_,
          ": damaged: it says that the model has ", layers, " layers, ", heads, " heads, ",
          channels, " channels, ", vocab_size, " of ", padded, " embeddings and ", context,
          " positions");
  check(padded >= vocab_size, path_, ": damaged: the vocabulary of ", vocab_size,
        " is padded to only ", padded);
  type_ = version == 3 ? at::kFloat : at::kBFloat16;
  padded_vocab_ = padded;
  model_.vocab_size = vocab_size;
  model_.context = context;
  model_.layers = layers;
  model_.heads = heads;
  model_.channels = channels;
  model_.mlp_channels = 4 * channels;
}

void LlmCFile::place(const std::string& pattern, const std::vector<std::int64_t>& shape,
                     bool is_transposed) {
  const std::size_t star = pattern.find('*');
  const std::int64_t count = star == std::string::npos ? 1 : model_.layers;
  for (std::int64_t layer = 0; layer < count; ++layer) {
    std::string name = pattern;
    if (star != std::string::npos) name.replace(star, 1, std::to_string(layer));
    places_[name] = {end_, shape, is_transposed};
    end_ += c10::multiply_integers(shape) * static_cast<std::int64_t>(c10::elementSize(type_));
  }
}

std::vector<FoundTensor> LlmCFile::tensors() const {
  std::vector<FoundTensor> tensors;
  for (const auto& [name, place] : places_) tensors.push_back({{name, type_, place.shape}, path_});
  return tensors;
}

void LlmCFile::read(const std::string& name, const at::Tensor& target) {
  const Place& place = places_.at(name);
  const at::Tensor rows = target.detach().view({target.size(0), -1});
  file_.clear();
  file_.seekg(place.offset);
  read_matrix(file_, type_, place.is_transposed ? rows.t() : rows, path_);
}

}  // namespace ladder
