#include "common/train/options/options.hpp"

#include <algorithm>
#include <cmath>

#include "common/comm/launcher_environment.hpp"
#include "common/core/check.hpp"
#include "common/data/tokenizer.hpp"
#include "common/train/memory_need.hpp"
#include "common/train/options/option_table.hpp"

namespace ladder {

namespace {

// A pipeline's own options, and how they divide the batch.
void finalize_pipeline(TrainOptions& options) {
  PipelineOptions& pipeline = options.pipeline;
  const std::int64_t rows = options.data.microbatch_size, local = pipeline.local_batch_size;
  const bool has_docs = pipeline.docs_per_step > 0;
  const auto values = [&] {
    const std::string batch = local != 0
                                  ? concat("--local-batch-size ", local)
                                  : concat("--num-microbatches ", options.data.num_microbatches);
    return concat("--micro-batch-size ", rows, ", ", batch, ", --pipeline-stages ",
                  pipeline.num_stages);
  };
  if (local > 0) {
    check_usage(local % rows == 0, values, ": ", local, " rows do not divide into microbatches of ",
                rows);
    options.data.num_microbatches = local / rows;
  }
  check_usage(options.data.num_microbatches >= std::max(1, pipeline.num_stages) || has_docs, values,
              ": a flush needs at least as many microbatches as there are stages, here it has ",
              options.data.num_microbatches);
  check_usage(!has_docs || (local == 0 && pipeline.accumulation == 1), "--docs-per-step ",
              pipeline.docs_per_step,
              " decides how many microbatches a step has, all in one flush; leave out ",
              local > 0 ? concat("--local-batch-size ", local)
                        : concat("--accumulation ", pipeline.accumulation));
  if (has_docs) options.data.num_microbatches = 1;  // those that are fetched at a time
  check_usage(!has_docs || !options.data.overfit_one_batch, "--docs-per-step ",
              pipeline.docs_per_step,
              " reads on until it has enough documents, --overfit-one-batch reads the same rows "
              "again; give only one of them");
  const bool is_interleaved = pipeline.schedule == Schedule::kInterleaved;
  check_usage((pipeline.chunks_per_stage > 1) == is_interleaved, "--chunks-per-stage is ",
              pipeline.chunks_per_stage,
              is_interleaved
                  ? ", but --pipeline-schedule interleaved needs 2 or more"
                  : ", but only --pipeline-schedule interleaved takes another number than 1");
}

void finalize_diloco(const TrainOptions& options) {
  check_diloco(options.diloco);
  const std::int64_t length = steps_per_round(options.diloco);
  check_usage(options.num_steps % length == 0, "--steps ", options.num_steps,
              " ends in the middle of a round of ", length,
              " inner steps (--sync-every / --fragments), whose work would be lost: choose a "
              "multiple of ",
              length);
}

// Options that only mean something to workers that may die are refused without --elastic.
void finalize_elastic(const TrainOptions& options) {
  const ElasticOptions& elastic = options.elastic;
  if (!elastic.lighthouse.empty()) {
    check_elastic(elastic);
    check_usage(options.diloco.wire == WireFormat::kFp32,
                "--wire is for ranks of one run; with --elastic, values travel in fp32");
    return;
  }
  const ElasticOptions unused;
  const auto check_unused = [](const char* name, bool is_unused) {
    check_usage(is_unused, name,
                " is for workers that meet at a lighthouse: give --elastic HOST:PORT");
  };
  check_unused("--worker", elastic.worker == unused.worker);
  check_unused("--workers", elastic.num_workers == unused.num_workers);
  check_unused("--min-workers", elastic.min_workers == unused.min_workers);
  check_unused("--join-timeout", elastic.join_timeout_s == unused.join_timeout_s);
  check_unused("--round-timeout", elastic.round_timeout_s == unused.round_timeout_s);
  check_unused("--patience", elastic.patience_s == unused.patience_s);
  check_unused("--merge", elastic.merge == unused.merge);
  check_unused("--elastic-key", elastic.key_file == unused.key_file);
}

// The formats of parameters and gradients.
void finalize_precision(TrainOptions& options) {
  const Precision& precision = options.model.precision;
  const auto name = [](at::ScalarType type) {
    return type == at::kFloat ? "fp32" : type == at::kHalf ? "fp16" : "bf16";
  };
  check_usage(precision.grads == at::kFloat || precision.grads == precision.params, "--grad-dtype ",
              name(precision.grads), " goes with --precision ", name(precision.grads),
              ", but parameters are ", name(precision.params),
              ": gradients are either fp32 or what "
              "parameters are");
  check_usage(precision.has_16_bit_params() || options.optimizer.masters == Masters::kFp32,
              "--masters none and stochastic are for 16-bit parameters, but --precision is fp32, "
              "which needs no masters");
  constexpr double kLargest = 1 << 30;
  const double scale = options.loss_scale.initial;
  int exponent = 0;
  check_usage(scale >= 1 && scale <= kLargest && std::frexp(scale, &exponent) == 0.5,
              "--loss-scale is ", scale, ", it must be a power of two from 1 to 2^30, for example ",
              "65536");
  options.optimizer.seed = options.seed;
}

// Who starts the ranks.
void finalize_ranks(const TrainOptions& options) {
  const int num_ranks = options.num_ranks;
  const bool are_threads = options.transport == Transport::kThreads;
  check_usage(are_threads || num_ranks == 0, "--ranks ", num_ranks,
              " is for --transport threads, which starts the ranks in this process; ranks that are "
              "processes are started by mpirun -n ",
              num_ranks, " or ./ladder train ", options.step, " --ranks ", num_ranks);
  check_usage(!are_threads || num_ranks != 0,
              "--transport threads starts the ranks itself: give their number with --ranks N");
  check_usage(num_ranks >= 0 && num_ranks <= kMostRanks, "--ranks is ", num_ranks,
              ", it must be at least 1 and at most ", kMostRanks);
  constexpr int kMostTogether = 16384;
  check_usage(num_ranks * options.num_threads <= kMostTogether, "--ranks ", num_ranks,
              " with --threads ", options.num_threads, " is ", num_ranks * options.num_threads,
              " threads in one process, more than the ", kMostTogether, " that can be started");
  const bool is_on_gpu = options.device.is_cuda();
  check_usage(is_on_gpu || options.transport != Transport::kNccl,
              "--transport nccl carries tensors on GPUs: give --device cuda as well");
  check_usage(
      options.link.empty() || options.transport != Transport::kNccl, "--link ", options.link,
      " slows messages down that pass through the host, and NCCL's do not; leave it out, or "
      "use --transport mpi");
  check_usage(
      !is_on_gpu || !are_threads,
      "--transport threads is for the CPU: libtorch computes all backward passes of a GPU on "
      "one thread, on which ranks would wait for each other; start processes, which may share "
      "the GPU: mpirun -n ",
      num_ranks, ", or ./ladder train ", options.step, " --ranks ", num_ranks);
  check_usage(!is_on_gpu || options.elastic.lighthouse.empty(), "--elastic ",
              options.elastic.lighthouse,
              " is for workers on the CPU: leave out --device cuda, or --elastic");
  check_usage(!are_threads || options.memory_cap_mb == 0, "--memory-cap-mb ", options.memory_cap_mb,
              " limits the memory of a rank, but with --transport threads all ranks share that of "
              "one process; leave it out, or use --transport mpi");
}

void finalize_cuda_graphs(const TrainOptions& options) {
  if (!options.uses_cuda_graphs) return;
  check_usage(options.groups.contains(OptionGroup::kCudaGraphs), "--cuda-graphs true is not for ",
              options.step, ", which does not record its launches: leave it out");
  check_usage(options.device.is_cuda(),
              "--cuda-graphs true records what a GPU does, but --device is cpu: give --device cuda "
              "as well, or leave out --cuda-graphs");
}

// The objective's own options.
void finalize_objective(const TrainOptions& options) {
  const ObjectiveKind kind = options.objective.kind;
  const DpoOptions& dpo = options.objective.dpo;
  const DistillationOptions& distillation = options.objective.distillation;
  check_usage(distillation.prototypes <= options.model.vocab_size, "--prototypes is ",
              distillation.prototypes, ", it must be at most the size of the vocabulary, which is ",
              options.model.vocab_size);
  check_usage(
      kind != ObjectiveKind::kSelfDistillation ||
          distillation.scope != SinkhornScope::kMicrobatch || options.data.microbatch_size != 1,
      "--micro-batch-size 1 with --sinkhorn-scope microbatch: a sample that is balanced "
      "alone belongs to every prototype alike, and teaches nothing; take --micro-batch-size "
      "2 or more, or --sinkhorn-scope batch");
  check_usage(kind == ObjectiveKind::kDpo || (dpo.reference.empty() && dpo.cache.empty()),
              dpo.reference.empty() ? "--dpo-reference-cache " : "--dpo-reference ",
              dpo.reference.empty() ? dpo.cache : dpo.reference, " is for --objective dpo only");
  if (kind != ObjectiveKind::kDpo) return;
  check_usage(!dpo.reference.empty() || !options.output.init_from.empty(),
              "--objective dpo compares with a frozen model, and neither --dpo-reference nor "
              "--init-from names one: give --dpo-reference CHECKPOINT");
  check_usage(options.data.rows == Rows::kWindows,
              "--rows documents is not for --objective dpo, whose rows are the answers of pairs; "
              "leave it out");
}

}  // namespace

std::string unit_of(const ObjectiveOptions& options) {
  switch (options.kind) {
    case ObjectiveKind::kLanguageModel:
      return "target tokens";
    case ObjectiveKind::kDpo:
      return options.dpo.unit == DpoUnit::kPairs ? "pairs" : "answer tokens";
    case ObjectiveKind::kSelfDistillation:
      return "samples";
  }
  return {};
}

int num_stages_of(const TrainOptions& options, int world_size) {
  const int num_stages = options.pipeline.num_stages > 0 ? options.pipeline.num_stages : world_size;
  check_usage(world_size % num_stages == 0, "--pipeline-stages is ", num_stages,
              ", which does not divide ", world_size,
              " rank(s): every replica needs one rank per stage");
  check_usage(
      num_stages > 1 || options.pipeline.schedule != Schedule::kInterleaved,
      "--pipeline-schedule is interleaved, but a single stage has nothing to interleave: use "
      "another schedule, or more stages (--ranks, --pipeline-stages)");
  check_usage(options.data.num_microbatches >= num_stages || options.pipeline.docs_per_step > 0,
              "--micro-batch-size ", options.data.microbatch_size, ", --num-microbatches ",
              options.data.num_microbatches, ", ", num_stages,
              " stages: a flush needs at least as many microbatches as stages");
  return num_stages;
}

std::int64_t microbatches_per_step(const TrainOptions& options) {
  return options.data.num_microbatches * options.pipeline.accumulation;
}

void finalize(TrainOptions& options) {
  check_ranges(options);
  options.model.vocab_size =
      options.data.vocab_size > 0 ? options.data.vocab_size : ByteTokenizer::kVocabSize;
  options.data.context = options.model.context;
  options.data.seed = options.seed;
  options.data.is_pinned = options.device.is_cuda();
  validate(options.model);
  if (options.groups.contains(OptionGroup::kPipeline)) {
    finalize_pipeline(options);
    finalize_objective(options);
  }
  if (options.groups.contains(OptionGroup::kDiloco)) {
    finalize_diloco(options);
    finalize_elastic(options);
  }
  check_is_countable(options);
  check_usage(options.memory_cap_mb == 0 ||
                  (options.memory_cap_mb * 1024 * 1024 >= 1 && options.memory_cap_mb <= 1 << 30),
              "--memory-cap-mb is ", options.memory_cap_mb,
              ", it must be 0 (no cap), or at least one byte and at most a PiB");
  check_usage(options.bucket_mb * 1024 * 1024 >= 1 && options.bucket_mb <= 1 << 20,
              "--bucket-mb is ", options.bucket_mb,
              ", it must be at least one byte, and at most a TiB");
  if (!options.link.empty()) parse_link(options.link);
  finalize_ranks(options);
  finalize_cuda_graphs(options);
  finalize_precision(options);
  check_usage(options.output.eval_every == 0 || options.data.source == "corpus" ||
                  !options.data.validation_source.empty(),
              "--eval-every ", options.output.eval_every,
              " needs validation data: give --val-data as well as --data ", options.data.source);
  check_usage(options.output.resume != "auto" || !options.output.out.empty(),
              "--resume auto continues from the newest checkpoint in --out: give --out");
  check_usage(
      options.output.init_from.empty() || options.output.resume == "none" ||
          options.output.resume == "auto",
      "--init-from ", options.output.init_from, " starts a new run, --resume ",
      options.output.resume,
      " continues an old one: give only one of them, or --resume auto, which continues once "
      "there is a checkpoint in --out");
  check_usage(options.output.sample.empty() || options.data.vocab_size == 0,
              "--sample continues text, but --vocab-size ", options.data.vocab_size,
              " says that the data consist of token ids");
}

std::int64_t rows_per_step(const TrainOptions& options, std::int64_t num_replicas) {
  return options.data.microbatch_size * microbatches_per_step(options) * num_replicas *
         options.simulate_ranks;
}

int num_ranks_of(const TrainOptions& options) {
  return options.num_ranks > 0 ? options.num_ranks : launched_ranks();
}

bool needs_loss_scale(const TrainOptions& options) {
  return options.model.precision.params == at::kHalf;
}

std::int64_t memory_cap_bytes(const TrainOptions& options) {
  return static_cast<std::int64_t>(options.memory_cap_mb * 1024 * 1024);
}

std::int64_t bucket_capacity_bytes(const TrainOptions& options) {
  return static_cast<std::int64_t>(options.bucket_mb * 1024 * 1024);
}

}  // namespace ladder
