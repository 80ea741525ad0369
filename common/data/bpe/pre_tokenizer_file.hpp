// The parts of tokenizer.json that say how text is cut into pieces, and what is added to it.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "common/data/bpe/bpe_files.hpp"

namespace ladder {

// How GPT-2 cuts text: contractions, and runs of letters, of digits or of other characters, each
// with the space before it; then the rest of a run of white space.
inline constexpr const char* kGpt2Pattern =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";

// Supported: ByteLevel, or a Sequence of Digits and Split (a Regex, Isolated, not inverted) that
// ends with ByteLevel. Throws CheckError naming anything else.
std::vector<PreTokenizerStage> read_pre_tokenizer(const nlohmann::json& file,
                                                  const std::string& name);

// A post-processor may not add tokens: the ids that training reads would not be those that the
// tokenizer gives. Supported: none; ByteLevel, which only shifts offsets; and a TemplateProcessing
// whose "single" is just the text.
void check_post_processor(const nlohmann::json& file, const std::string& name);

}  // namespace ladder
