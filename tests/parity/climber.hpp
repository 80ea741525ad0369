// Runs trainers on all ranks, and the oracle on one. All ranks see the same files.
#pragma once

#include <string>

#include "common/comm/communicator.hpp"
#include "common/testing/temp_folder.hpp"
#include "common/train/options/options.hpp"
#include "step0_single_gpu/judge/comparison.hpp"
#include "tests/parity/configurations.hpp"
#include "tests/parity/rungs.hpp"

namespace ladder {

// How far the numbers of two runs may be apart, relatively.
struct Closeness {
  double loss = 2e-6, grad_norm = 1e-5, param_norm = 1e-6;
};
// Expects that of the runs' losses and norms, step by step.
void expect_close(const FinishedRun& run, const FinishedRun& wanted, const Closeness& within = {});

class Climber {
 public:
  Climber();
  ~Climber();  // removes rank 0's folder, once all ranks have read what they want there

  int rank() const { return comm_.rank(); }
  int size() const { return comm_.size(); }
  TrainOptions options(const Configuration& configuration) const {
    return options_of(configuration, texts_);
  }
  void wait_for_all() { comm_.barrier(); }

  // Trains on all ranks, and compares what each holds and sends with theory.
  FinishedRun climb(const Trainer& rung, TrainOptions options);
  // Climbs on these ranks' own communicator, such as one with another transport.
  FinishedRun climb(const Trainer& rung, TrainOptions options, Communicator& comm);
  // Trains on the first num_ranks ranks; the others wait and get an empty report.
  FinishedRun climb_on(int num_ranks, const Trainer& rung, TrainOptions options);
  // Local: simulates so many ranks in this one. Keeps all activations.
  FinishedRun ask_oracle(const TrainOptions& options, int num_ranks);
  // Collective: expects of the run, on rank 0, that it is the oracle's with these options, to the
  // bit. Returns the oracle's there, and elsewhere the run itself.
  FinishedRun expect_oracle(const FinishedRun& run, const TrainOptions& options, int num_ranks);

  // A new folder for every run, the same on all ranks.
  std::string folder_for(const std::string& name);

 private:
  void start_apart(int num_ranks, const Trainer& rung, TrainOptions& options) const;
  void share_hash(FinishedRun& run);
  void expect_theory(const Trainer& rung, const TrainOptions& options, const TrainReport& report,
                     const MemoryReading& before, const Machines& machines) const;

  Communicator& comm_;
  TempFolder folder_;
  Texts texts_;
  std::string shared_folder_;
  int num_runs_ = 0;     // by all ranks together: the same on each
  int num_answers_ = 0;  // by the oracle on this rank alone
};

}  // namespace ladder
