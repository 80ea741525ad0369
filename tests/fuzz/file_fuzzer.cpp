// The bytes are a file, which the reader that the program is named for reads: chat_fuzzer, … The
// programs differ in their names alone.
#include <ATen/ops/empty.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <tuple>

#include "common/data/bpe/bpe_tokenizer.hpp"
#include "common/data/conversations.hpp"
#include "common/data/encoded_file.hpp"
#include "common/data/preference_pairs.hpp"
#include "common/data/text_file.hpp"
#include "common/data/token_file.hpp"
#include "common/testing/temp_folder.hpp"
#include "common/train/checkpoint/disk.hpp"
#include "common/train/checkpoint/safetensors.hpp"
#include "common/train/pretrained/model_config.hpp"
#include "common/train/pretrained/pretrained_weights.hpp"
#include "tests/fuzz/fuzz_input.hpp"
#include "tests/fuzz/small_checkpoint.hpp"

namespace ladder {
namespace {

struct Input {
  std::string path, bytes;
};

// The first byte selects a file of a valid checkpoint; the others replace its content.
void checkpoint(const Input& file) {
  static const TempFolder folder;
  static const std::filesystem::path checkpoint = save_small_checkpoint(folder.path());
  if (file.bytes.empty()) return;
  const auto which = static_cast<unsigned char>(file.bytes[0]);
  const std::filesystem::path path = checkpoint / kCheckpointFiles[which % kCheckpointFiles.size()];
  const std::string good = read_text_file(path);
  std::ofstream(path, std::ios::binary) << file.bytes.substr(1);
  const TrainState state = small_state();
  reads_or_refuses([&] {
    const LoadedCheckpoint loaded = load_checkpoint(checkpoint, state);
    must_hold(loaded.step >= 0 && loaded.optimizer_steps >= 0 && loaded.data.epoch >= 0 &&
              loaded.data.samples >= 0 && loaded.config.is_object());
  });
  reads_or_refuses([&] { load_parameters(checkpoint, state); });
  std::ofstream(path, std::ios::binary) << good;
}

// llm.c's checkpoint of a GPT-2.
void llm_c_file(const Input& file) {
  LlmCFile model(file.path);
  for (const FoundTensor& tensor : model.tensors())
    model.read(tensor.name, at::empty(tensor.shape, at::kFloat));
}

// config.json of a Hugging Face folder.
void model_config(const Input& file) {
  const ModelOptions model = parse_model_config(file.bytes, "config.json").model;
  must_hold(model.layers > 0 && model.heads > 0 && model.channels > 0 && model.context > 0 &&
            model.vocab_size > 0 && model.mlp_channels > 0 && model.rope_theta > 0 &&
            model.norm_eps > 0);
  parse_model_config(to_text(model_config_json(model, at::kFloat)), "what was written");
}

// model.safetensors.index.json of a Hugging Face folder.
void weight_index(const Input& file) {
  const std::filesystem::path folder = "folder";
  for (const auto& [name, tensors] : parse_weight_index(file.bytes, "index.json"))
    must_hold(!tensors.empty() && (folder / name).lexically_normal().parent_path() == folder);
}

void safetensors(const Input& file) {
  SafetensorsReader reader(file.path);
  std::size_t num_bytes = 0;
  for (const StoredTensor& stored : reader.tensors()) {
    if (std::ranges::count(stored.shape, 0) > 0) continue;  // libtorch refuses some of these
    const at::Tensor tensor = at::empty(stored.shape, stored.dtype);
    reader.read(stored.name, tensor);
    num_bytes += tensor.nbytes();
  }
  must_hold(num_bytes <= file.bytes.size());
}

// Documents begin in order, and each has its end-of-text token.
void must_be_whole(const TokenizedText& text) {
  auto end = std::max(text.tokens.size(), text.end);
  must_hold(text.starts.front() == 0);
  for (auto start = text.starts.rbegin(); start != text.starts.rend(); ++start) {
    must_hold(*start < end);
    end = *start;
  }
}

// Every pair has two rows that fit, with an answer to predict.
void must_have_rows(const TokenizedText& pairs) {
  const auto num_tokens = std::max(pairs.tokens.size(), pairs.end);
  must_hold(pairs.part_ends.back() == num_tokens);
  for (std::int64_t pair = 0; pair < std::ssize(pairs.starts); ++pair) {
    for (const auto answer : {Answer::kChosen, Answer::kRejected}) {
      for (const std::int64_t context : {1, 8}) {
        const RowTokens row = row_of_pair(pairs, pair, answer, context);
        const auto& [prompt, text] = std::tie(row.ranges.at(0), row.ranges.at(1));
        must_hold(0 <= prompt.begin && prompt.length >= 1);
        must_hold(prompt.begin + prompt.length <= text.begin);
        must_hold(text.begin + text.length <= num_tokens);
        must_hold(row.num_targets() >= 1 && row.length() <= context + 1);
      }
    }
  }
}

// What ./ladder encode writes. The ranges of every row follow one another from its beginning, and are
// not empty.
void encoded(const Input& file) {
  const EncodedFile encoded(file.path);
  const TokenizedText text = encoded.boundaries();
  const auto tokenizer = encoded.open();
  std::string all;
  for (std::int64_t token = 0; token < tokenizer->vocab_size(); ++token)
    all += tokenizer->text_of(static_cast<std::uint32_t>(token));
  reads_or_refuses([&] { TokenFile(file.path, tokenizer->vocab_size()); });
  if (encoded.rows() == Rows::kPairs) must_have_rows(text);
  if (encoded.rows() != Rows::kChat) return must_be_whole(text);
  for (std::size_t k = 0; k < text.starts.size(); ++k) {
    const auto conversation = static_cast<std::int64_t>(k);
    for (const std::int64_t context : {1, 8, 1000}) {
      const RowTokens row = row_of_conversation(text, conversation, context);
      std::int64_t place = text.starts[k];
      for (const TokenRange& range : row.ranges) {
        must_hold(range.begin == place && range.length > 0);
        place += range.length;
      }
      must_hold(row.length() == std::min(text.length(conversation), context + 1));
    }
  }
}

// A .jsonl file of documents or of preference pairs, and a .txt file.
void text_file(const Input& file) {
  ByteTokenizer tokenizer;
  reads_or_refuses([&] { must_be_whole(read_jsonl(file.path, tokenizer)); });
  reads_or_refuses([&] { must_have_rows(read_jsonl_pairs(file.path, tokenizer)); });
  const TokenizedText text = read_txt(file.path, tokenizer);
  must_be_whole(text);
  must_hold(text.tokens.size() == static_cast<std::int64_t>(file.bytes.size()) + 1);
}

// A .bin file of nanoGPT or llm.c.
void token_file(const Input& file) {
  for (const std::int64_t vocab_size :
       {std::int64_t{50257}, std::int64_t{1} << 16, std::int64_t{1} << 32}) {
    reads_or_refuses([&] {
      const TokenFile tokens(file.path, vocab_size);
      must_hold(tokens.num_tokens() > 0);
      must_hold(tokens.token_bytes() == 4 || vocab_size <= 65536);
      tokens.visit([&](auto list) {
        must_hold(std::ranges::all_of(list, [&](auto token) { return token < vocab_size; }));
      });
    });
  }
}

// A tokenizer.json, which then encodes a text with a bit of everything.
void tokenizer(const Input& file) {
  BpeTokenizer tokenizer(file.path);
  const TokenList tokens =
      tokenizer.encode("the cat's <|im_end|>  12\n\t\xff\xe2\x82 é中😀 e\u0301 aaaa");
  for (std::int64_t i = 0; i < tokens.size(); ++i) must_hold(tokens[i] < tokenizer.vocab_size());
  must_hold(tokenizer.end_of_text() < tokenizer.vocab_size());
  must_hold(tokenizer.begin_of_text().value_or(0) < tokenizer.vocab_size());
  must_hold(tokenizer.padding() < tokenizer.vocab_size());
}

const std::map<std::string, std::function<void(const Input&)>> kReaders = {
    {"checkpoint", checkpoint},     {"encoded", encoded},         {"llm_c_file", llm_c_file},
    {"model_config", model_config}, {"safetensors", safetensors}, {"text_file", text_file},
    {"token_file", token_file},     {"tokenizer", tokenizer},     {"weight_index", weight_index}};

std::function<void(const Input&)> reader;

}  // namespace
}  // namespace ladder

extern "C" int LLVMFuzzerInitialize(int* /*argc*/, char*** argv) {
  const std::string program = std::filesystem::path((*argv)[0]).filename();
  ladder::reader = ladder::kReaders.at(program.substr(0, program.rfind("_fuzzer")));
  return 0;
}

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* bytes, std::size_t size) {
  const ladder::FuzzFile file(bytes, size);
  ladder::reads_or_refuses([&] {
    ladder::reader({file.path(), std::string(reinterpret_cast<const char*>(bytes), size)});
  });
  return 0;
}
