// A checkpoint as a Hugging Face folder, which from_pretrained() of transformers takes as it is.
//
//   FOLDER/config.json             the model's shape
//   FOLDER/model.safetensors       its parameters, by transformers' names
//   FOLDER/generation_config.json  the tokens that begin and end a text
//   FOLDER/tokenizer.json, …       the run's own tokenizer, or one that reads bytes
//
// A text ends with what ended the run's rows, and with what has ended it before that run. All files
// say so, and that transformers is to read tokenizer.json as it is.
//
// A model that was trained on token ids of a file has no tokenizer to export.
#pragma once

#include <ATen/core/Tensor.h>

#include <filesystem>
#include <string>

namespace ladder {

// Writes the folder, which must be new; it appears only once all of it is on disk. Parameters are
// stored as `dtype`, fp32, bf16 or fp16, and pass through memory one by one. Throws UsageError if
// the folder exists, or if a value is too large for the type; CheckError if the checkpoint is
// damaged, or the folder cannot be written. Returns what its readers must be warned of; empty:
// nothing.
std::string export_checkpoint(const std::filesystem::path& checkpoint,
                              const std::filesystem::path& folder, at::ScalarType dtype);

}  // namespace ladder
