// What a run keeps in its folder: the log of its steps, and its checkpoints, of which --keep good ones
// stay. A checkpoint is good once the step after it had a finite loss and gradient, for the update that
// ruins a model is seen only then. Until then, the good ones before it stay.
#pragma once

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "common/core/json.hpp"
#include "common/train/options/options.hpp"

namespace ladder {

// What a run keeps in its folder, --out. On other ranks, and without a folder, it writes nothing.
class RunFiles {
 public:
  // Throws CheckError if --out holds another run, or is what --init-from names.
  RunFiles(const TrainOptions& options, bool is_main);
  bool are_written() const { return is_main_ && !out_.empty(); }
  const std::filesystem::path& folder() const { return out_; }
  std::vector<std::filesystem::path> checkpoints() const;       // of this run; all ranks look
  void continue_from(const std::filesystem::path& checkpoint);  // perhaps of another folder
  // Before training: the log keeps what earlier parts of the run wrote up to this step.
  void open(const TrainOptions& options, std::int64_t step);
  void log(const Json& line);
  // The state has been replaced by another one of this step: what was logged of later ones is forgotten.
  void go_on_after(std::int64_t step);

  // All ranks call these, so that all can name the checkpoint that is left; one deletes.
  void began_with(
      std::int64_t step);             // the newest checkpoint is of this step, and was there before
  void has_saved(std::int64_t step);  // the newest is of this step, and the run has written it
  void was_finite(std::int64_t step);  // loss and gradient: a checkpoint before this step is good
  // After a step that was not finite: sets aside a checkpoint that has only led there, unless this step
  // has found that it `is_good`. One that was there before stays, for other options may be to blame.
  // Returns what the message says of it, and of the one that is left.
  std::string find_way_back(bool is_good);

 private:
  std::filesystem::path out_;
  std::filesystem::path past_;  // the log of earlier parts
  std::int64_t keep_;
  bool is_main_;                     // rank 0, or a simulated one
  std::int64_t unproven_step_ = -1;  // of the newest checkpoint, until a step after it was finite
  bool is_loaded_ = false;           // it was there before
  std::ofstream metrics_;
};

}  // namespace ladder
