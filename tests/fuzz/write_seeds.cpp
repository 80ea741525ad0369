// write_seeds FOLDER: valid files for the fuzzers, in FOLDER/safetensors, FOLDER/token_file, …
#include <ATen/ops/arange.h>
#include <ATen/ops/full.h>

#include <cstdio>
#include <cstring>
#include <fstream>

#include "common/core/check.hpp"
#include "common/testing/encoded_bytes.hpp"
#include "common/testing/temp_folder.hpp"
#include "common/train/checkpoint/disk.hpp"
#include "common/train/checkpoint/safetensors.hpp"
#include "common/train/pretrained/model_config.hpp"
#include "step9_diloco/elastic/message.hpp"
#include "tests/fuzz/small_checkpoint.hpp"

namespace ladder {
namespace {

namespace fs = std::filesystem;

void write(const fs::path& path, const std::string& bytes) {
  fs::create_directories(path.parent_path());
  std::ofstream(path, std::ios::binary) << bytes;
}

void write_safetensors_seeds(const fs::path& folder) {
  fs::create_directories(folder);
  const std::vector<at::Tensor> tensors = {at::full({2, 3}, 0.5), at::arange(3, at::kLong),
                                           at::full({}, 1), at::full({0, 4}, 1)};
  std::vector<StoredTensor> list;
  for (const at::Tensor& tensor : tensors)
    list.push_back({concat("t", list.size()), tensor.scalar_type(), tensor.sizes().vec()});
  SafetensorsWriter writer(folder / "four", list, {{"format", "pt"}});
  for (const at::Tensor& tensor : tensors) writer.write(tensor);
  writer.finish();
  SafetensorsWriter(folder / "none", {}).finish();
}

// A file in llm.c's format: 256 words, then the tokens.
template <class Token>
std::string llm_c(std::int32_t magic, std::int32_t version) {
  std::string bytes(1024, '\0');
  const std::int32_t header[] = {magic, version, 3};
  std::memcpy(bytes.data(), header, sizeof header);
  return bytes + bytes_of<Token>({1, 50256, 7});
}

void write_token_seeds(const fs::path& folder) {
  write(folder / "nano_gpt", bytes_of<std::uint16_t>({0, 50256, 7}));
  write(folder / "llm_c_16", llm_c<std::uint16_t>(20240520, 1));
  write(folder / "llm_c_32", llm_c<std::uint32_t>(20240801, 7));
}

void write_text_seeds(const fs::path& folder) {
  write(folder / "jsonl",
        "{\"context\":\"CREATE TABLE a (b INT)\",\"question\":\"How many?\",\"answer\":\"SELECT "
        "1\"}\n"
        "\n{\"answer\":\"\\u00e9\\n\",\"more\":[1,{\"a\":null}]}\r\n");
  write(folder / "pairs",
        "{\"prompt\":\"How many?\",\"chosen\":\"SELECT 1\",\"rejected\":\"SELECT 2\"}\n"
        "{\"rejected\":\"\",\"chosen\":\"\\u00e9\",\"prompt\":\"\"}\r\n");
  write(folder / "txt", "two\nlines");
}

void write_tokenizer_seeds(const fs::path& folder) {
  write(
      folder / "tokenizer" / "small",
      R"({"added_tokens":[{"id":2,"content":"<|endoftext|>","special":true}],"normalizer":)"
      R"({"type":"Sequence","normalizers":[{"type":"NFC"}]},)"
      R"("pre_tokenizer":{"type":"Sequence","pretokenizers":[{"type":"Split","pattern":{"Regex":)"
      R"("a+|\\s"},"behavior":"Isolated","invert":false},{"type":"ByteLevel","add_prefix_space":)"
      R"(true,"use_regex":false}]},"post_processor":{"type":"Sequence","processors":[{"type":)"
      R"("ByteLevel"},{"type":"TemplateProcessing","single":[{"SpecialToken":{"id":)"
      R"("<|endoftext|>"}},{"Sequence":{"id":"A"}}],"special_tokens":{"<|endoftext|>":{"ids":)"
      R"([2]}}}]},"decoder":{"type":"ByteLevel"},"model":{"type":"BPE","ignore_merges":true,"vocab":{"a":0,"aa":1},"merges":)"
      R"([["a","a"]]}})");
  write(folder / "encoded" / "documents", encoded_bytes({}));
  EncodedParts parts = {
      .rows = "chat", .starts = {0, 2}, .tokens = {97, 98, 99, 256}, .mask = {0, 1, 0, 1}};
  parts.sample = {{"text", "Hi"}, {"tokens", {7, 8}}};
  write(folder / "encoded" / "chat", encoded_bytes(parts));
  write(folder / "encoded" / "pairs",
        encoded_bytes({.rows = "pairs", .starts = {0, 1, 2}, .tokens = {97, 98, 99}}));
}

void write_checkpoint_seeds(const fs::path& folder) {
  const TempFolder run;
  const fs::path checkpoint = save_small_checkpoint(run.path());
  for (std::size_t i = 0; i < kCheckpointFiles.size(); ++i)
    write(folder / kCheckpointFiles[i],
          static_cast<char>(i) + read_text_file(checkpoint / kCheckpointFiles[i]));
}

// See the fuzzers for what the first bytes mean.
void write_worker_seeds(const fs::path& folder) {
  write(folder / "message" / "sum",
        encode({.kind = MessageKind::kSum, .total = 6, .payload = "values"}));
  write(folder / "message" / "state",
        encode({.kind = MessageKind::kState, .total = 6, .payload = "values"}));
  const std::string fields = {1, 3, 2, 1, 2, 3, 1, 2, 0, 1};  // piece 0 of worker 1's state
  write(folder / "message" / "fields", '\1' + fields + fields);
  const std::string counters = bytes_of<std::int64_t>({3, 12, 4});
  write(folder / "snapshot" / "right", '\7' + counters + std::string(8 * 4, '\0'));
  for (char format = 0; format < 3; ++format)
    write(folder / "wire_format" / concat("format", int{format}),
          std::string({format, 0, '\x80'}) + std::string(600, '\x3f'));
}

void write_model_seeds(const fs::path& folder) {
  for (const ModelFamily family : all_families()) {
    const ModelOptions model = {.family = family, .kv_heads = 2, .mlp_channels = 64};
    write(folder / "model_config" / traits_of(family).name(),
          to_text(model_config_json(model, at::kFloat)));
  }
  write(folder / "model_config" / "rope_parameters",
        R"({"model_type":"llama","rope_parameters":{"rope_type":"default","rope_theta":1e4}})");
  write(folder / "weight_index" / "two",
        R"({"weight_map":{"a":"x-1.safetensors","b":"x-1.safetensors","c":"x-2.safetensors"}})");
  std::string file(1024, '\0');
  const std::int32_t words[] = {20240326, 3, 1, 1, 1, 1, 1, 2};
  std::memcpy(file.data(), words, sizeof words);
  write(folder / "llm_c_file" / "fp32", file + std::string(4 * (3 + 25 + 2), '\1'));
}

}  // namespace
}  // namespace ladder

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fputs("usage: write_seeds FOLDER\n", stderr);
    return 2;
  }
  const std::filesystem::path folder = argv[1];
  ladder::write_safetensors_seeds(folder / "safetensors");
  ladder::write_token_seeds(folder / "token_file");
  ladder::write_text_seeds(folder / "text_file");
  ladder::write_tokenizer_seeds(folder);
  ladder::write_checkpoint_seeds(folder / "checkpoint");
  ladder::write_model_seeds(folder);
  ladder::write_worker_seeds(folder);
}
