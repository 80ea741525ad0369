// For tests: the bytes of a file as ./ladder encode writes it, with byte tokens.
#pragma once

#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "common/data/tokenizer.hpp"

namespace ladder {

struct EncodedParts {
  std::string rows = "documents";
  std::vector<std::int64_t> starts = {0};
  std::vector<std::uint16_t> tokens = {'a', ByteTokenizer::kEndOfText};
  std::vector<std::uint8_t> mask = {};  // of conversations
  nlohmann::ordered_json sample = nullptr;
  std::map<std::string, std::string> files = {{"tokenizer.model", "any"}};
};

// `changes` take the place of members of the header.
inline std::string encoded_bytes(const EncodedParts& parts,
                                 const nlohmann::ordered_json& changes = {}) {
  const ByteTokenizer bytes;
  std::vector<std::uint32_t> lengths;
  std::string texts, files;
  for (std::uint32_t token = 0; token < ByteTokenizer::kVocabSize; ++token) {
    texts += bytes.text_of(token);
    lengths.push_back(static_cast<std::uint32_t>(bytes.text_of(token).size()));
  }
  nlohmann::ordered_json header = {{"ladder_tokens", 1},
                                   {"rows", parts.rows},
                                   {"vocab_size", ByteTokenizer::kVocabSize},
                                   {"begin", nullptr},
                                   {"end", ByteTokenizer::kEndOfText},
                                   {"padding", ByteTokenizer::kPadding},
                                   {"sample", parts.sample},
                                   {"num_starts", parts.starts.size()},
                                   {"num_tokens", parts.tokens.size()},
                                   {"token_bytes", 2},
                                   {"text_bytes", texts.size()},
                                   {"files", nlohmann::ordered_json::object()}};
  for (const auto& [name, contents] : parts.files) {
    header["files"][name] = contents.size();
    files += contents;
  }
  if (changes.is_object()) header.update(changes);
  std::string line = header.dump();
  line.replace(line.find(':'), 1, ": ");
  line.append(7 - line.size() % 8, ' ') += '\n';
  const auto append = [&](const auto& numbers) {
    line.append(reinterpret_cast<const char*>(numbers.data()), numbers.size() * sizeof(numbers[0]));
  };
  append(parts.starts);
  append(lengths);
  append(parts.tokens);
  append(parts.mask);
  return line + texts + files;
}

}  // namespace ladder
