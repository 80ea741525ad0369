// Where a run starts from: nothing, a run of ours, or a model of another program. The words of the
// command line have been read by then; here, what they name is opened.
//
//   --init-from FOLDER      a Hugging Face folder: config.json, and weights as .safetensors
//   --init-from FILE.bin    llm.c's checkpoint of a GPT-2
//   --init-from RUN         a run of ours, which means its newest checkpoint, or a checkpoint
//
// The model's shape comes from there, so the options of the shape need not be given; those that are
// given must agree. All ranks read the files, each for itself, and keep their part. Table of what
// is read and what is refused: docs/hugging_face.md.
#pragma once

#include <filesystem>
#include <string>

#include "common/train/checkpoint/train_state.hpp"
#include "common/train/options/command_line.hpp"

namespace ladder {

class Start {
 public:
  // Looks what is there, without opening it. Empty: nothing, so that a run starts from its seed.
  explicit Start(std::filesystem::path path);

  bool has_model() const { return kind_ != Kind::kNothing; }
  bool is_of_another_program() const { return kind_ == Kind::kHuggingFace || kind_ == Kind::kLlmC; }

  // Throws if nothing is there that a run can start from, so that no other option is asked for what
  // it would have told: UsageError if the path does not exist, or if it has no tokenizer and the
  // data are text that nobody says how to read; CheckError if it holds no model.
  void check_can_begin(const TrainOptions& options) const;

  // Family and shape, from the file `shape_file`; `context` is the longest that the model can have,
  // or, of our runs, the one that it was trained with. Throws CheckError naming the file if it is
  // damaged or the model is none of ours.
  ModelOptions model() const;
  std::filesystem::path shape_file() const;

  // Reads the parameters, one at a time; of a longer context only the first positions. Checks
  // first, before any tensor changes, that all are there, in their shapes, and no others. Throws
  // CheckError naming file and tensor. Returns the hash that they would have in a checkpoint.
  std::string load(const TrainState& state, bool has_tied_head) const;

  // For the console: "models/smol, a Hugging Face folder (llama)".
  std::string describe() const;

 private:
  enum class Kind { kNothing, kRun, kHuggingFace, kLlmC };
  std::filesystem::path path_;
  Kind kind_ = Kind::kNothing;
};

// Opens what the options name, and copies what it says and values that several parts share into the
// parts: the shape of the start or of the named model, where an option has not been given; the
// tokenizer and its vocabulary; the data's context and seed. Then checks everything that can be
// checked without opening the data. Throws UsageError, and what Start throws. Code that fills in
// the struct itself must call it.
void finalize(TrainOptions& options);

// Finalizes the options of a command line. What a run would start from must be there, unless it is
// only asked what the run would be. Writes the text of --print-config.
void finalize(CommandLine& line);

}  // namespace ladder
