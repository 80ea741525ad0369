// The files of a run's tokenizer, kept with the run and exported with its model: whoever has the
// parameters has what their tokens mean.
#pragma once

#include <filesystem>
#include <string>

#include "common/data/options.hpp"

namespace ladder {

// Copies them to RUN/tokenizer, if the data are not read as bytes, and if they are not there yet.
// Throws CheckError if that folder holds another tokenizer.
void keep_tokenizer(const DataOptions& data, const std::filesystem::path& run);

// RUN/tokenizer of the run that this checkpoint belongs to. Throws CheckError if it does not hold
// the tokenizer with this name, as Tokenizer::name() says it.
std::filesystem::path kept_tokenizer(const std::filesystem::path& checkpoint,
                                     const std::string& name);

// Copies the files that a tokenizer consists of in a Hugging Face folder, of those that are there.
void copy_tokenizer_files(const std::filesystem::path& from, const std::filesystem::path& to);

}  // namespace ladder
