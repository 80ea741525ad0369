// A run's account of itself: report.json.
//
// The keys are a contract on which tests, benchmarks and outside tools rely; docs/report.md lists
// them. Doubles are written so that they read back to the same bits; other than finite ones are
// null.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "common/comm/traffic.hpp"
#include "common/core/json.hpp"
#include "common/core/memory_ledger.hpp"
#include "common/core/process_memory.hpp"
#include "common/data/batch_counts.hpp"
#include "common/train/options/options.hpp"
#include "common/train/report/state_bytes.hpp"
#include "common/train/report/step_record.hpp"

namespace ladder {

class Communicator;

struct ValidationLoss {
  std::int64_t step = 0;  // optimizer steps taken before it
  double loss = 0;        // a mean, in nats
  Metrics metrics = {};
  // The summed loss divided by the bytes of the targets' text, whatever tokens they are cut into.
  // Nothing if the unit is no token, or it is not known what tokens stand for.
  std::optional<double> nats_per_byte = {};
};

// One rank's account of a run. The series have one entry per optimizer step of this run; losses and
// norms are global values, the same on every rank.
struct TrainReport {
  std::int64_t first_step = 0;             // number of steps that an earlier run had taken
  Transport transport = Transport::kSelf;  // that carried the messages
  int num_replicas = 1;                    // of the model, each on its own samples
  int num_stages = 1;                      // into which each replica is cut
  int num_tensor_ranks = 1;                // that share each stage's layers
  std::int64_t num_parameters = 0;         // without padding
  std::vector<double> losses;              // means, in nats
  std::vector<double> grad_norms;          // before clipping
  std::vector<double> param_norms;         // after the step
  std::vector<double> learning_rates;
  std::vector<std::int64_t> denominators;  // of the losses: by default, numbers of target tokens
  std::vector<Metrics> metrics;            // of each step the same names
  std::vector<double> step_seconds;        // a simulated rank's waiting included
  std::vector<double> simulated_waits_s;  // how much of them is waiting that took no time; or empty
  BatchCounts batch_counts;  // what this rank has run forward and backward, over all steps
  // What losses are means over, on all ranks. The first step warms up, so it is left out as soon as
  // there is a second one.
  double counted_per_second = 0;
  double product_flops_per_s = 0;  // of this rank's matrix products; 0: not measured
  std::vector<ValidationLoss> val_losses;
  std::int64_t skipped_steps = 0;
  std::int64_t repeated_steps = 0;   // because an exact sum left its range, or lost digits
  std::string param_hash;            // of the final parameters; empty if no state was handed over
  std::int64_t data_bytes_read = 0;  // by this rank
  std::int64_t token_bytes = 0;      // of a token as the data has it stored
  std::optional<std::int64_t> data_bytes_theory;  // nothing where theory does not know it
  MemoryReading memory;              // live: between steps; peaks: during training, saves left out
  std::int64_t save_peak_bytes = 0;  // largest total during a save; 0: nothing was saved
  ResidentMemory resident;           // after the last step; peak: from the start to the last save
  StateBytes memory_theory;
  StateBytes peak_theory;
  Traffic traffic;                       // of the training steps, as metered where bytes leave
  Traffic traffic_theory;                // the same as the formulas predict
  std::vector<std::string> differences;  // from theory: a line for each amount that is another
  double bubble = 0;         // of a simulated rank's pipeline, as theory predicts: idle / computing
  bool was_stopped = false;  // by a signal, before the last step
  std::string sample;        // the text that --sample asked for
};

// Whether the memory that the ledger counts is this rank's. Ranks that are threads share the ledger,
// and all else, of their process.
bool has_own_ledger(const TrainOptions& options);

Json finite_or_null(double value);

// Merges the ranks' reports into that of the whole run. Collective: every rank calls it; rank 0
// gets the result, the others null. A simulated rank gets a report of itself alone.
Json gather_report(const TrainReport& report, const TrainOptions& options, Communicator& comm);

// The exercises whose solutions are replaced by the learner's own files (LADDER_EXERCISE):
// "step4_bucketed_ddp, step5_zero1"; empty: none.
const std::string& own_answers();

}  // namespace ladder
