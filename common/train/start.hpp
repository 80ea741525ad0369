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

#include "common/model/model_options.hpp"
#include "common/train/options/options.hpp"
#include "common/train/run_start.hpp"

namespace ladder {

struct Theory;

class Start final : public RunStart {
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

  std::string load(const TrainState& state, bool has_tied_head) const override;
  std::string describe() const override;
  void keep_files(const TrainOptions& options, const std::filesystem::path& run) const override;

 private:
  enum class Kind { kNothing, kRun, kHuggingFace, kLlmC };
  std::filesystem::path path_;
  Kind kind_ = Kind::kNothing;
};

// Opens what the options name, and finalizes them by it (finalize.hpp). Throws UsageError, and what
// Start throws. Code that fills in the struct itself must call it.
void finalize(TrainOptions& options);

// These options, finalized, as this step sees them: with its own ones and no other step's.
TrainOptions options_for(const Theory& theory, TrainOptions options);

}  // namespace ladder
