// What a run starts from, as the run sees it: parameters, and what belongs to them. Of whose files
// they are, start.hpp knows.
#pragma once

#include <filesystem>
#include <string>

#include "common/train/checkpoint/train_state.hpp"
#include "common/train/options/options.hpp"

namespace ladder {

class RunStart {
 public:
  virtual ~RunStart() = default;

  // Reads the parameters, one at a time; of a longer context only the first positions. Checks
  // first, before any tensor changes, that all are there, in their shapes, and no others. Throws
  // CheckError naming file and tensor. Returns the hash that they would have in a checkpoint.
  virtual std::string load(const TrainState& state, bool has_tied_head) const = 0;

  // For the console: "models/smol, a Hugging Face folder (llama)".
  virtual std::string describe() const = 0;

  // Copies the files of the run's tokenizer, and what the start says of its model, to the run's
  // folder, if they are not there yet. Throws CheckError if it holds those of another one.
  virtual void keep_files(const TrainOptions& options, const std::filesystem::path& run) const = 0;
};

}  // namespace ladder
