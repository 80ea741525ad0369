// All options of a trainer, in one typed struct that is validated once.
//
// On the command line they are long options in kebab case, the same for all steps; a step may add
// its own groups. The defaults below are those of the command line.
#pragma once

#include <cstdint>
#include <set>
#include <string>

#include "common/comm/world.hpp"
#include "common/data/options.hpp"
#include "common/model/gpt.hpp"
#include "common/optim/loss_scaler.hpp"
#include "common/optim/lr_schedule.hpp"
#include "common/optim/optimizer.hpp"
#include "common/train/json.hpp"
#include "common/train/options/diloco_options.hpp"
#include "common/train/options/elastic_options.hpp"
#include "common/train/options/objective_options.hpp"
#include "common/train/options/pipeline_options.hpp"

namespace ladder {

// The order in which gradients are summed: first over a rank's microbatches and then over ranks
// (steps 0 to 5), or first over the ranks within each microbatch (steps 6 and 7, which reduce after
// every microbatch).
enum class Fold { kMicrobatchesFirst, kRanksFirst };

constexpr int kMostRanks = 1024;  // also stages and workers: far beyond any use of a course

// Options that only some steps have.
enum class OptionGroup {
  kSimulatedRanks,
  kReference,
  kCudaGraphs,
  kBuckets,
  kPrefetch,
  kPipeline,
  kDiloco
};

struct OutputOptions {
  // The folder of the run. Empty: nothing is written. run_main() replaces it by a fresh folder.
  std::string out = {};
  std::string resume = "none";  // none, auto (the newest checkpoint in `out`, if any), or a folder
  std::string init_from = {};   // a checkpoint whose parameters are the start of a new run
  std::string sample = {};      // text to continue after training; empty: no sample
  std::int64_t log_every = 10;
  std::int64_t eval_every = 0;  // 0: never
  std::int64_t save_every = 0;  // 0: at the end only
  // A second, smaller copy of the parameters in each checkpoint, for other tools; fp32: none.
  at::ScalarType save_dtype = at::kFloat;
  std::int64_t keep = 3;  // how many of the newest checkpoints are kept; 0: all
  bool is_quiet = false;  // nothing on the console
};

struct TrainOptions {
  std::string step = {};              // name of the trainer, for example "step0_single_gpu"
  std::set<OptionGroup> groups = {};  // the options that this step adds to the common ones
  std::int64_t num_steps = 200;       // optimizer steps in total, including those before a resume
  std::uint64_t seed = 1;
  GptOptions model;
  DataOptions data;
  OptimizerOptions optimizer;
  LrOptions lr;
  LossScaleOptions loss_scale;  // of fp16
  double clip_norm = 1.0;       // 0: off
  double memory_cap_mb = 0;     // MiB of tensors that a rank may hold; 0: no cap
  int num_threads = 1;  // compute threads per rank; bits are equal between steps with 1 only
  at::Device device = at::kCPU;  // where parameters, gradients and activations live
  bool is_deterministic = true;  // on a GPU: kernels that give the same bits in every run
  Transport transport = Transport::kAuto;
  NcclOptions nccl;       // of the nccl transport
  int num_ranks = 0;      // to start as threads of this process; 0 with any other transport
  std::string link = {};  // LATENCY_US:GBPS, a paced link between ranks; empty: full speed
  OutputOptions output;
  std::int64_t simulate_ranks = 1;  // kSimulatedRanks: ranks that this process plays
  Fold fold = Fold::kMicrobatchesFirst;
  std::string save_reference = {};  // kReference: a folder for what later steps are compared with
  bool uses_cuda_graphs = false;    // kCudaGraphs: launch each microbatch as two recordings
  double bucket_mb = 25;            // kBuckets: capacity of a gradient bucket, in MiB
  int prefetch = 1;                 // kPrefetch: units whose parameters are gathered ahead, 0 to 2
  PipelineOptions pipeline;         // kPipeline
  ObjectiveOptions objective;       // kPipeline
  DilocoOptions diloco;             // kDiloco
  ElasticOptions elastic;           // kDiloco
};

// Copies shared values into the parts (the model's vocabulary, the data's context and seed) and
// checks everything that can be checked without opening the data. Throws UsageError.
// parse_command_line() calls it; code that fills in the struct itself must call it too.
void finalize(TrainOptions& options);

// The number of ranks: --ranks, or as many as the launcher has started.
int num_ranks_of(const TrainOptions& options);

// --memory-cap-mb in bytes; 0: no cap.
std::int64_t memory_cap_bytes(const TrainOptions& options);

// A pipeline's stages on so many ranks: --pipeline-stages, or one per rank. Throws UsageError
// naming all values if they do not divide the ranks, if a flush has fewer microbatches, or if a
// single stage should interleave.
int num_stages_of(const TrainOptions& options, int world_size);

// The microbatches of an optimizer step on each replica: --num-microbatches, in every flush.
std::int64_t microbatches_per_step(const TrainOptions& options);

// The rows of a whole optimizer step (the global, or effective, batch) on so many replicas. With
// --docs-per-step, those of one microbatch each.
std::int64_t rows_per_step(const TrainOptions& options, std::int64_t num_replicas);

// Whether gradients need a loss scale, which only fp16 does.
bool needs_loss_scale(const TrainOptions& options);

// --bucket-mb in bytes.
std::int64_t bucket_capacity_bytes(const TrainOptions& options);

// All options by their command-line names, with their current values.
Json to_json(const TrainOptions& options);

}  // namespace ladder
