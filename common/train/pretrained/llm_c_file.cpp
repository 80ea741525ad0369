#include "common/train/pretrained/llm_c_file.hpp"

#include <array>
#include <cerrno>
#include <cstring>

#include "common/core/check.hpp"
#include "common/data/mapped_file.hpp"
#include "common/train/checkpoint/safetensors.hpp"

namespace ladder {
namespace {

namespace fs = std::filesystem;

constexpr std::int32_t kLlmCMagic = 20240326;
constexpr std::array<std::int32_t, 2> kTokenMagics = {20240520, 20240801};
constexpr std::int64_t kHeaderBytes = 256 * sizeof(std::int32_t);
constexpr std::int32_t kMostExtent = 1 << 18;  // of vocabulary and channels: no product overflows
constexpr std::int32_t kMostLayersOfFile = 1 << 16;

}  // namespace

LlmCFile::LlmCFile(const fs::path& path) : path_(path), file_(path, std::ios::binary) {
  std::error_code error;
  const auto num_bytes = static_cast<std::int64_t>(fs::file_size(path, error));
  check(!error && file_.good(), path_,
        ": cannot be opened: ", error ? error.message() : std::strerror(errno));
  refuse_lfs_pointer(path_);
  check(num_bytes >= kHeaderBytes, path_, ": is no checkpoint of llm.c: ", num_bytes,
        " bytes are too few");
  read_words();
  const std::int64_t C = model_.channels;
  const std::int64_t numel =
      (padded_vocab_ + model_.context) * C + model_.layers * (12 * C * C + 13 * C) + 2 * C;
  const auto needed = kHeaderBytes + numel * static_cast<std::int64_t>(c10::elementSize(type_));
  check(num_bytes == needed, path_, ": has ", num_bytes, " bytes, but a model of ", model_.layers,
        " layers, ", C, " channels, ", padded_vocab_, " embeddings and ", model_.context,
        " positions needs ", needed);
  end_ = kHeaderBytes;
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
  file_.read(reinterpret_cast<char*>(words.data()), kHeaderBytes);
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

std::vector<PretrainedTensor> LlmCFile::tensors() const {
  std::vector<PretrainedTensor> tensors;
  for (const auto& [name, place] : places_) tensors.push_back({name, place.shape, path_});
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
