// One run's plumbing on one rank: its progress, its log, its files, and when it stops.
//
// Nothing here communicates, except the functions of a state that is passed in. Global values
// (losses, norms, stop requests) are passed in by the loop, which shows the collective that made
// them global. Files and console belong to rank 0 of the world, or to a simulated rank, which saves
// no checkpoint: what it has trained means nothing.
//
// With an `out` folder a run writes metrics.jsonl (a line per logged step) and checkpoints/. A
// folder that holds another run is refused unless that run is resumed. The log begins with what was
// logged up to the resumed checkpoint, wherever that lies.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "common/comm/communicator.hpp"
#include "common/comm/mesh.hpp"
#include "common/core/check.hpp"
#include "common/core/stop_signal.hpp"
#include "common/core/timer.hpp"
#include "common/core/trace.hpp"
#include "common/optim/exact_sums.hpp"
#include "common/optim/loss_scaler.hpp"
#include "common/optim/norm.hpp"
#include "common/train/checkpoint/train_state.hpp"
#include "common/train/options/options.hpp"
#include "common/train/report/console.hpp"
#include "common/train/report/report.hpp"
#include "common/train/report/step_record.hpp"
#include "common/train/run_files.hpp"

namespace ladder {

// Thrown on all ranks at once: a global value is not finite.
class Diverged : public CheckError {
 public:
  using CheckError::CheckError;
};

// How fast steps count what the loss is a mean over.
struct Pace {
  double counted = 0, seconds = 0;
  void add(double step_counted, double step_seconds) {
    counted += step_counted;
    seconds += step_seconds;
  }
  double per_second() const { return seconds > 0 ? counted / seconds : 0; }
};

// Measures for the report what this rank's steps take: time, memory and traffic.
class StepMeter {
 public:
  // Lifetime: both outlive it.
  StepMeter(Communicator& world, TrainReport& report) : world_(world), report_(report) {}
  void begin_step(std::int64_t step);
  void end_step();
  void count_traffic();     // of the steps, since it was last counted
  void read_held_memory();  // between steps; kept after the step that leaves most behind
  void measure_save(const std::function<void()>& save);  // its peaks are counted separately

 private:
  void keep_training_peaks();

  Communicator& world_;
  TrainReport& report_;
  std::optional<Span> span_;
  Timer timer_;
  CpuTimer computing_;   // of a simulated rank, in this step
  double waited_s_ = 0;  // by a simulated rank, when the step began
  Traffic counted_;      // up to here, traffic is in the report, or was none of a step's
};

class Run {
 public:
  // The mesh's communicators outlive the run, which reads ranks, sizes and counters. (A single
  // communicator is a mesh in which every rank is a replica.) Throws CheckError if `out` holds
  // another run, or is what --init-from names.
  Run(const TrainOptions& options, const Mesh& mesh);

  // Reads the checkpoint that --resume names or, if there is none, the parameters of --init-from,
  // into this state; changes nothing if neither is given. From here on, --gradient-sum exact rounds
  // what backward adds to the gradients of state.summed.
  void resume(TrainState state);

  // True while there is a step to take. The report counts the memory in use at this call as what is
  // held between steps.
  bool next_step();
  std::int64_t num_steps_taken() const { return steps_.taken; }  // those before a resume included
  // What all ranks must agree about, by its description (same_start.hpp).
  const Json& resumed_from() const { return *resumed_from_; }
  // The next step is the one after `step`: this state has been replaced by another worker's (step
  // 9), perhaps of an earlier step. Its history is newer than that of what has been saved.
  void continue_from(std::int64_t step);
  double learning_rate() const { return steps_.learning_rate; }  // skipped steps do not move it
  double loss_scale() const { return loss_scaler_.scale(); }     // of the next backward; or 1
  // Returns a loss with the same values; in fp16, its gradients are loss_scale() times as large.
  // Lifetime: the run outlives it.
  template <class Loss>
  Loss with_loss_scale(Loss loss) const {
    return loss_scaler_.applied_to(std::move(loss));
  }
  ExactSums& exact_sums() { return exact_sums_; }  // of --gradient-sum exact; else they are off
  // Decides, once per step, from the norm of the whole gradient, whether the optimizer takes it: not
  // if fp16's gradients have overflowed, anywhere. The loss scale changes with it (loss_scaler.hpp).
  // Nor if an exact sum does not fit its quanta. Then the step is repeated: the batch stream steps
  // back, end_step() drops what it is given, and next_step() begins the same step again.
  bool decide_step(const Clipping& clip);
  // For ranks that decide each for itself, and so save each its own (step 9).
  LossScaler& loss_scaler() { return loss_scaler_; }
  bool stop_requested() const { return StopSignal::was_raised(); }  // on this rank
  // Ends the step and records it. Throws Diverged if a value is not finite. The values are global, so
  // the run then ends on all ranks, before anything is saved. A checkpoint is good once the step after
  // it was finite: until then, the good ones before it stay. If that step was not, it is set aside.
  void end_step(const StepRecord& record);
  // end_step(record) in two parts, for ranks that tell each other only every few steps what has happened:
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
  ExtraFile quanta_file() const;  // of exact sums
  bool is_done() const { return steps_.taken >= options_.num_steps || steps_.is_stopping; }
  std::string load(const std::filesystem::path& checkpoint,
                   const TrainState& state);  // returns its hashes
  void write_state(TrainState state);
  void log_step(std::int64_t step, const StepRecord& record);

  TrainOptions options_;
  Mesh mesh_;
  RunFiles files_;
  Console console_;
  TrainReport report_;
  StepMeter meter_;
  KnownJson resumed_from_;
  BatchStream* batches_ = nullptr;
  struct {
    std::int64_t taken = 0;                     // those of earlier runs included
    std::vector<std::int64_t> unrecorded = {};  // ended, but not recorded yet
    std::int64_t saved = -1;                    // the last one; -1: nothing of this state
    double learning_rate = 0;                   // of the one that has begun
    bool is_repeated = false;                   // the one that has begun will begin again
    bool have_begun = false, is_stopping = false;
  } steps_;
  LossScaler loss_scaler_;
  ExactSums exact_sums_;
  Pace pace_, pace_since_line_;
};

// What all ranks tell each other at the end of an optimizer step.
struct StepSums {
  double loss = 0;                 // a rank's part of the step's loss; their sum is the loss
  bool is_stop_requested = false;  // this rank has received a signal; one is enough to stop all
};

// Sums over all ranks in one all-reduce of two doubles. Collective, blocking.
StepSums all_reduce_sum(const StepSums& own, Communicator& comm,
                        CallSite where = CallSite::current());
// The same in two: over the replicas of each stage, then over the stages, of which one has the loss.
StepSums all_reduce_sum(const StepSums& own, const Mesh& mesh,
                        CallSite where = CallSite::current());

}  // namespace ladder
