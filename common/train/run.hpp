// One run's plumbing on one rank: its progress, its log, its files, and when it stops.
//
// Nothing here communicates, except the functions of a state that is passed in. Global values
// (losses, norms, stop requests) are passed in by the loop, which shows the collective that made
// them global. Files and console belong to rank 0 of the world, or to a simulated rank, which saves
// no checkpoint: what it has trained means nothing.
//
// With an `out` folder a run writes metrics.jsonl (a line per logged step) and checkpoints/. A
// folder that holds another run is refused unless that run is resumed; its log is then cut back to
// the resumed checkpoint.
#pragma once

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <optional>
#include <string>
#include <vector>

#include "common/comm/communicator.hpp"
#include "common/comm/mesh.hpp"
#include "common/core/check.hpp"
#include "common/core/timer.hpp"
#include "common/core/trace.hpp"
#include "common/train/checkpoint/checkpoint.hpp"
#include "common/train/options/options.hpp"
#include "common/train/report/console.hpp"
#include "common/train/report/report.hpp"
#include "common/train/report/step_record.hpp"
#include "common/train/stop_signal.hpp"

namespace ladder {

// Thrown on all ranks at once: a global value is not finite.
class Diverged : public CheckError {
 public:
  using CheckError::CheckError;
};

class Run {
 public:
  // The mesh's communicators outlive the run, which reads ranks, sizes and counters. (A single
  // communicator is a mesh in which every rank is a replica.) Throws CheckError if `out` holds
  // another run, or is what --init-from names.
  Run(const TrainOptions& options, const Mesh& mesh);

  // Reads the checkpoint that --resume names or, if there is none, the parameters of --init-from,
  // into this state; changes nothing if neither is given.
  void resume(TrainState state);

  // True while there is a step to take. The report counts the memory in use at this call as what is
  // held between steps.
  bool next_step();
  std::int64_t num_steps_taken() const { return step_; }  // those before a resume included
  // Hashes of what --resume or --init-from has read; empty for a run that starts from its seed.
  const std::string& resumed_hashes() const { return resumed_hashes_; }
  const std::string& reference_hash() const { return reference_hash_; }  // of the state; or empty
  // The next step is the one after `step`: this state has been replaced by another worker's (step
  // 9). If that is an earlier step, nothing is saved until the run is past the newest checkpoint
  // again.
  void continue_from(std::int64_t step) { step_ = step; }
  bool is_saved() const { return saved_step_ == step_; }  // --out already holds this very state
  // The learning rate of the next step: skipped ones do not move the schedule.
  double learning_rate() const;
  double loss_scale() const {
    return loss_scaler_.scale();
  }  // of the next backward; 1 but for fp16
  // Whether the optimizer may take this step; false if fp16's gradients have overflowed, anywhere.
  // To be called once, with the norm of the whole gradient (loss_scaler.hpp).
  bool accepts(double grad_norm);
  // For ranks that decide each for itself, and so save each its own (step 9).
  const LossScaler& loss_scaler() const { return loss_scaler_; }
  void restore_loss_scale(const LossScaleState& state);
  bool stop_requested() const { return StopSignal::was_raised(); }  // on this rank
  // Ends the step. Throws Diverged if a value is not finite. The values are global, so the run then
  // ends on all ranks, before anything is saved: the older checkpoints stay as they are.
  void record(const StepRecord& record);
  // The same in two parts, for ranks that tell each other only every few steps what has happened:
  // end_step() after each step, and then the records of all that have ended since, oldest first.
  // Only the last one may ask to stop.
  void end_step();
  void record(const std::vector<StepRecord>& records);

  void announce(const std::string& text) { console_.line(text); }  // on rank 0, before training

  // Nothing comes between a request to stop and the save: what is due then is left out.
  bool should_evaluate() const;  // after steps that --eval-every divides, and after the last one
  void record_validation(double loss, const Metrics& metrics = {});  // kStoppedLoss is not recorded
  bool should_sample() const;  // after the last step, if --sample asks for text; rank 0 shows it
  void record_sample(const std::string& text);
  bool should_save() const;  // after steps that --save-every divides
  // Collective if the state's tensors are spread over ranks: each sends its part, rank 0 writes.
  void save(const TrainState& state);

  // After the last step: saves the state, unless that was just done. Collective if save() is.
  void finish(const TrainState& state);
  const TrainReport& report() const { return report_; }  // of this rank

 private:
  // Data-parallel replicas, simulated ones included: their number decides the order of sums.
  std::int64_t num_replicas() const {
    return mesh_.num_replicas() * batch_shape(options_).replicas_per_rank;
  }
  bool is_writing() const { return is_main_ && !out_.empty(); }
  bool is_done() const { return step_ >= options_.num_steps || is_stopping_; }
  void check_folder() const;  // it must hold no run, or the one that is resumed
  void load(const std::filesystem::path& checkpoint, TrainState& state);
  void open_files();
  void write_metrics(Json line);
  void write_state(const TrainState& state);
  void log_step(std::int64_t step, const StepRecord& record);
  void count_traffic();
  void read_held_memory();
  void keep_training_peaks();  // peaks during a save are counted separately

  TrainOptions options_;
  Mesh mesh_;
  bool is_main_;  // rank 0, or a simulated one
  std::filesystem::path out_;
  Console console_;
  std::ofstream metrics_;
  TrainReport report_;
  std::int64_t step_ = 0;  // optimizer steps taken, those of earlier runs included
  bool has_started_ = false;
  bool is_stopping_ = false;
  std::int64_t saved_step_ = -1;
  std::string resumed_hashes_;
  std::string reference_hash_;
  TargetText validation_text_;
  LossScaler loss_scaler_;
  std::int64_t skipped_steps_ = 0;  // before the next one
  Timer step_timer_;
  std::optional<Span> step_span_;
  Speed speed_;
  std::vector<std::int64_t> unrecorded_steps_;  // ended, but not recorded yet
  Traffic counted_traffic_;      // up to here, traffic is in the report, or was none of a step's
  CpuTimer computing_;           // of a simulated rank, in this step
  double simulated_wait_s_ = 0;  // when the step began
};

// What all ranks tell each other at the end of an optimizer step.
struct StepSums {
  double loss = 0;                 // a rank's part of the step's loss; their sum is the loss
  bool is_stop_requested = false;  // this rank has received a signal; one is enough to stop all
};

// Sums over all ranks in one all-reduce of two doubles, folded in rank order. Collective, blocking.
StepSums all_reduce_sum(const StepSums& own, Communicator& comm,
                        CallSite where = CallSite::current());

}  // namespace ladder
