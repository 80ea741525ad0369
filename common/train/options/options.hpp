// All options of a trainer, in one typed struct that is validated once.
//
// On the command line they are long options in kebab case, the same for all steps; a step may add
// its own (step_options.hpp). The defaults below are those of the command line.
#pragma once

#include <cstdint>
#include <memory>
#include <set>
#include <string>

#include "common/comm/link.hpp"
#include "common/comm/nccl/nccl_options.hpp"
#include "common/comm/transport.hpp"
#include "common/core/device.hpp"
#include "common/core/json.hpp"
#include "common/data/options.hpp"
#include "common/model/model_options.hpp"
#include "common/optim/lr_schedule.hpp"
#include "common/optim/options.hpp"
#include "common/train/options/step_options.hpp"

namespace ladder {

class RunStart;

struct OutputOptions {
  // The folder of the run. Empty: nothing is written. run_main() replaces it by a fresh folder.
  std::string out = {};
  std::string resume = "none";  // none, auto (the newest checkpoint in `out`, if any), or a folder
  std::string init_from = {};   // a checkpoint or pretrained model whose parameters start a new run
  std::string sample = {};      // text to continue after training; empty: no sample
  std::string trace = {};       // a file for what all ranks did and when; empty: no trace
  std::int64_t log_every = 10;
  std::int64_t eval_every = 0;  // 0: never
  std::int64_t save_every = 0;  // 0: at the end only
  // A second, smaller copy of the parameters in each checkpoint, for other tools; fp32: none.
  NumberFormat save_dtype = NumberFormat::kFp32;
  std::int64_t keep = 3;  // how many of the newest good checkpoints are kept; 0: all
  bool is_quiet = false;  // nothing on the console
};

struct TrainOptions {
  std::string step = {};         // name of the trainer, for example "step0_single_gpu"
  std::int64_t num_steps = 200;  // optimizer steps in total, including those before a resume
  std::uint64_t seed = 1;
  std::string named_model = "gpt2";  // as given; if not, finalize() sets it
  ModelOptions model;
  DataOptions data;
  OptimizerOptions optimizer;
  LrOptions lr;
  LossScaleOptions loss_scale;  // of fp16
  SumMode gradient_sum = SumMode::kOrdered;
  double clip_norm = 1.0;    // 0: off
  double memory_cap_mb = 0;  // MiB of tensors that a rank may hold; 0: no cap
  int num_threads = 1;       // compute threads per rank; bits are equal between steps with 1 only
  Device device = {};        // where parameters, gradients and activations live
  bool is_deterministic = true;  // on a GPU: kernels that give the same bits in every run
  Transport transport = Transport::kAuto;
  NcclOptions nccl;  // of the nccl transport
  // How many to start as threads of this process, or to simulate; 0 with any other transport.
  int num_ranks = 0;
  int simulated_rank = 0;          // which of them this process is
  double check_collectives_s = 0;  // how long a rank may wait; 0: nothing is checked
  // LATENCY_US:GBPS, paced links to ranks on the same machine and on others; empty: full speed.
  std::string link = {}, outer_link = {};
  int ranks_per_machine = 0;  // 0: as the launcher has started them
  OutputOptions output;
  // What `output.init_from` and the data's tokenizer name; finalize() finds it.
  std::shared_ptr<const RunStart> start = {};
  StepOptions own;                     // those that only this step has
  std::set<std::string> given = {};    // names, without dashes, that the user has given
  std::set<std::string> derived = {};  // those whose values follow from other options

  // The step's own options; their defaults if it has none of this kind.
  template <class Options>
  const Options& get() const {
    static const Options kDefaults;
    const Options* found = own.find<Options>();
    return found != nullptr ? *found : kDefaults;
  }
  // The step's own Options, to be changed; added if the step has none.
  template <class Options>
  Options& set() {
    return own.add<Options>();
  }
};

Cluster cluster_of(const TrainOptions& options);

// Checks what several options say together, once finalize() (start.hpp) has filled them in. Throws
// UsageError.
void check_together(const TrainOptions& options);

// The number of ranks: --ranks, or as many as the launcher has started.
int num_ranks_of(const TrainOptions& options);

bool is_simulated(const TrainOptions& options);  // this process is one of --ranks, and alone

// Whether files and console belong to this rank: to rank 0, or to a simulated one.
bool writes_for_all(const TrainOptions& options, int rank);

// --memory-cap-mb in bytes; 0: no cap.
std::int64_t memory_cap_bytes(const TrainOptions& options);

// What the options of this step mean for its batches.
BatchShape batch_shape(const TrainOptions& options);

// The microbatches of an optimizer step on each replica: --num-microbatches, in every flush.
std::int64_t microbatches_per_step(const TrainOptions& options);

// The microbatches of an optimizer step on all replicas together.
std::int64_t microbatches_of_all(const TrainOptions& options, std::int64_t num_replicas);

// The rows of a whole optimizer step (the global, or effective, batch) on so many replicas. If its
// size is not fixed, those of one microbatch each.
std::int64_t rows_per_step(const TrainOptions& options, std::int64_t num_replicas);

// Whether gradients need a loss scale, which only fp16 does.
bool needs_loss_scale(const TrainOptions& options);

// All options by their command-line names, with their current values.
Json to_json(const TrainOptions& options);

// The options that shape the model. Ranks that differ in one of them cannot exchange parameters.
Json model_to_json(const TrainOptions& options);

}  // namespace ladder
