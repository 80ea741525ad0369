#include "common/train/options/option_table.hpp"

#include <CLI/CLI.hpp>
#include <functional>

#include "common/core/check.hpp"
#include "common/train/options/option_values.hpp"

namespace ladder {
namespace {

const std::vector<std::pair<std::string, at::ScalarType>> kFormats = {
    {"fp32", at::kFloat}, {"bf16", at::kBFloat16}, {"fp16", at::kHalf}};

// Far beyond any use; and within these bounds, what is computed from several options stays finite.
constexpr std::int64_t kMostSteps = 1'000'000'000'000;
constexpr std::int64_t kLongestRound = 1'000'000;  // of inner steps
constexpr std::int64_t kMostRows = std::int64_t{1} << 31;
constexpr std::int64_t kMostTokenIds = std::int64_t{1} << 32;  // they have 4 bytes
constexpr std::int64_t kMostContext = std::int64_t{1} << 22;
constexpr std::int64_t kMostLayers = std::int64_t{1} << 16;
constexpr std::int64_t kMostChannels = std::int64_t{1} << 18;
constexpr std::int64_t kMostHeads = std::int64_t{1} << 12;
constexpr int kMostThreads = 1024;
constexpr double kMostFloat = 1e30;
constexpr double kMostDecay = 1e6;  // times the learning rate, it is still an fp32
constexpr double kMostSeconds = 1e9;
constexpr Range<double> kPositive = {.least = 0, .most = kMostFloat, .is_above = true};
constexpr Range<double> kNotNegative = {0, kMostFloat};
constexpr Range<double> kShare = {0, 1};
constexpr Range<double> kDecayRate = {.least = 0, .most = 1, .is_below = true};
constexpr Range<std::int64_t> kCount = {0, kMostSteps};
constexpr Range<std::int64_t> kPositiveCount = {1, kMostSteps};
constexpr Range<std::int64_t> kRows = {1, kMostRows};

class OptionTable {
 public:
  OptionTable(CLI::App& app, TrainOptions& options) : app_(app), o_(options) {}

  // The current values of all options, by name without the dashes.
  const Json& values() const { return values_; }
  void check_ranges() const {
    for (const auto& check : checks_) check();
  }

  void add_all() {
    add_run();
    add_data();
    add_model();
    add_optimizer();
    add_precision();
    add_output();
    if (o_.groups.contains(OptionGroup::kSimulatedRanks)) add_simulated_ranks();
    if (o_.groups.contains(OptionGroup::kReference)) add_reference();
    if (o_.groups.contains(OptionGroup::kCudaGraphs)) add_cuda_graphs();
    if (o_.groups.contains(OptionGroup::kBuckets)) add_buckets();
    if (o_.groups.contains(OptionGroup::kPrefetch)) add_prefetch();
    if (o_.groups.contains(OptionGroup::kPipeline)) {
      add_pipeline();
      add_objective();
    }
    if (o_.groups.contains(OptionGroup::kDiloco)) {
      add_diloco();
      add_elastic();
    }
  }

 private:
  template <class Value>
  void value(const char* name, Value& member, const char* help) {
    add(name, type_name<Value>(), default_text(member), help,
        [&member](const std::string& text) { return parse_value(text, member); });
    remember(name, member);
  }
  template <class Number>
  void number(const char* name, Number& member, const std::type_identity_t<Range<Number>>& range,
              const char* help) {
    value(name, member, help);
    checks_.push_back([&member, range, name] { check_is_in(range, name, member); });
  }
  // An option of true or false; without a value it means true.
  void flag(const char* name, bool& member, const char* help) {
    add(name, concat("[", kBoolType, "]"), "", help, [&member](const std::string& text) {
      return parse_value(text.empty() ? "true" : text, member);
    })->expected(0, 1);
    remember(name, member);
  }
  template <class Enum>
  void choice(const char* name, Enum& member,
              const std::vector<std::pair<std::string, Enum>>& names, const char* help) {
    std::string current, allowed;
    for (const auto& [text, constant] : names) {
      allowed += (allowed.empty() ? "" : "|") + text;
      if (constant == member) current = text;
    }
    add(name, allowed, current, help, [&member, names](const std::string& text) {
      for (const auto& [known, constant] : names) {
        if (known != text) continue;
        member = constant;
        return true;
      }
      return false;
    });
    remember(name, current);
  }

  // `assign` takes a value as text, and returns false if it is invalid.
  CLI::Option* add(const char* name, const std::string& type, const std::string& current,
                   const char* help, std::function<bool(const std::string&)> assign) {
    const auto read = [&app = app_, name, assign](const std::string& text) {
      const CLI::Option& option = *app.get_option(name);
      if (option.get_expected_min() > 0) check_is_value(app, option, text);
      check_usage(assign(text), name, " is '", excerpt(text), "', it must be ",
                  expected_value(option));
    };
    return app_.add_option_function<std::string>(name, read, help)
        ->type_name(type)
        ->default_str(current)
        ->group(group_);
  }

  void add_run() {
    group_ = "Run";
    number("--steps", o_.num_steps, kCount,
           "optimizer steps in total, including those before a resume");
    value("--seed", o_.seed, "seed for the model's initial values and the order of samples");
    number("--threads", o_.num_threads, {1, kMostThreads},
           "compute threads per rank; steps agree to the bit only with 1");
    choice("--products", o_.model.products,
           {{"onednn", Products::kOneDnn}, {"blas", Products::kBlas}},
           "library for fp32 matrix products on the CPU: oneDNN, or the BLAS that "
           "torch.nn.Linear calls; their last bits differ");
    value("--memory-cap-mb", o_.memory_cap_mb,
          "MiB of tensors that a rank may hold, to simulate a smaller device; 0: no cap");
    choice(
        "--device", o_.device, {{"cpu", at::kCPU}, {"cuda", at::kCUDA}},
        "where the model lives and is computed; cuda: a GPU for each rank, or one for all of them, "
        "in bf16 unless --precision says otherwise");
    value("--deterministic", o_.is_deterministic,
          "true: only GPU kernels that give the same bits in every run; false: the fastest ones");
    choice("--transport", o_.transport,
           {{"auto", Transport::kAuto},
            {"self", Transport::kSelf},
            {"mpi", Transport::kMpi},
            {"threads", Transport::kThreads},
            {"store", Transport::kStore},
            {"nccl", Transport::kNccl}},
           "what carries messages between ranks; threads: all ranks are threads of this process; "
           "store: that of torchrun, which starts no MPI; nccl: between GPUs, one for each rank");
    choice(
        "--reduction", o_.nccl.reduction,
        {{"native", Reduction::kNative}, {"ordered", Reduction::kOrdered}},
        "order in which nccl adds up: its own, which is the fastest; or that of the ranks, which "
        "gives the bits of the other transports");
    number("--nccl-timeout", o_.nccl.timeout_s,
           {.least = 0, .most = kMostSeconds, .is_above = true},
           "seconds that an operation of nccl may take once the GPU has begun it; after that it is "
           "taken for hung, and the run ended");
    value("--ranks", o_.num_ranks,
          "ranks to start with --transport threads; 0: those that the launcher has started");
    value("--link", o_.link,
          "LATENCY_US:GBPS, for example 50:1: slow the transport down to such a network");
  }

  void add_data() {
    group_ = "Data";
    value("--data", o_.data.source,
          "corpus (built in), or a file: .txt, .jsonl (text-to-SQL), .bin (nanoGPT, llm.c)");
    value("--val-data", o_.data.validation_source,
          "validation data of the same kinds; the corpus has its own");
    choice("--rows", o_.data.rows, {{"windows", Rows::kWindows}, {"documents", Rows::kDocuments}},
           "packed windows of the context's length, or one padded document per row");
    choice("--order", o_.data.order,
           {{"shuffled", SampleOrder::kShuffled}, {"sequential", SampleOrder::kSequential}},
           "a new permutation every epoch, or the order of the data");
    choice("--tail", o_.data.tail, {{"drop", Tail::kDrop}, {"pad", Tail::kPad}},
           "samples of an epoch that do not divide evenly over the ranks: drop, or repeat some");
    number("--micro-batch-size", o_.data.microbatch_size, kRows, "rows per forward and backward");
    number("--num-microbatches", o_.data.num_microbatches, kRows,
           "forwards and backwards per optimizer step and rank");
    number("--eval-samples", o_.data.validation_samples, kCount,
           "rows of the validation data per evaluation; 0: all");
    flag("--overfit-one-batch", o_.data.overfit_one_batch,
         "train on the first step's samples in every step, to test the loop");
  }

  void add_model() {
    group_ = "Model";
    number("--context", o_.model.context, {1, kMostContext}, "tokens per row, T");
    number("--layers", o_.model.layers, {1, kMostLayers}, "blocks, L");
    number("--heads", o_.model.heads, {1, kMostHeads},
           "attention heads, H; must divide --channels");
    number("--channels", o_.model.channels, {1, kMostChannels}, "width, C");
    number("--vocab-size", o_.data.vocab_size, {0, kMostTokenIds},
           "number of token ids of a .bin file; 0: text, read as bytes");
    value("--tie-embeddings", o_.model.tie_embeddings,
          "true: the head uses the token embedding as its weight");
  }

  void add_optimizer() {
    group_ = "Optimizer";
    choice("--optimizer", o_.optimizer.kind,
           {{"adamw", OptimizerKind::kAdamW}, {"sgd", OptimizerKind::kSgd}},
           "AdamW, or SGD without momentum");
    number("--lr", o_.lr.lr, kNotNegative, "largest learning rate");
    number("--min-lr", o_.lr.min_lr, kNotNegative,
           "learning rate that the decay reaches after the last step");
    choice("--lr-schedule", o_.lr.schedule,
           {{"cosine", LrSchedule::kCosine},
            {"linear", LrSchedule::kLinear},
            {"constant", LrSchedule::kConstant}},
           "shape of the decay after the warmup");
    number("--warmup-steps", o_.lr.warmup_steps, kCount,
           "steps over which the learning rate rises");
    number("--weight-decay", o_.optimizer.weight_decay, {0, kMostDecay},
           "on tensors of two or more dimensions");
    number("--beta1", o_.optimizer.beta1, kDecayRate,
           "AdamW's decay rate for the mean of gradients");
    number("--beta2", o_.optimizer.beta2, kDecayRate,
           "AdamW's decay rate for the mean of squared gradients");
    number("--eps", o_.optimizer.eps, kPositive, "AdamW's guard against division by zero");
    number("--clip-norm", o_.clip_norm, kNotNegative,
           "largest norm of the gradient; 0: no clipping");
  }

  void add_precision() {
    group_ = "Precision";
    choice("--precision", o_.model.precision.params, kFormats,
           "what parameters and activations are stored and computed in; with 16 bits the optimizer "
           "keeps fp32 masters of the parameters");
    choice("--grad-dtype", o_.model.precision.grads, kFormats,
           "what gradients are added up and reduced in; 16 bits, the same as --precision, save 2 "
           "bytes per parameter and half of the wire, and cost accuracy");
    choice(
        "--masters", o_.optimizer.masters,
        {{"fp32", Masters::kFp32}, {"none", Masters::kNone}, {"stochastic", Masters::kStochastic}},
        "what remembers the digits that 16-bit parameters cannot hold: fp32 masters; nothing; or "
        "nothing but chance, which rounds up or down at random");
    value("--loss-scale", o_.loss_scale.initial,
          "what fp16's loss is multiplied by at first, a power of two; halved when a gradient "
          "overflows, and that step is skipped");
    number("--loss-scale-window", o_.loss_scale.window, kPositiveCount,
           "good steps in a row after which the loss scale is doubled");
  }

  void add_output() {
    group_ = "Output";
    value("--out", o_.output.out, "folder of the run; default: a fresh one under runs/");
    value("--resume", o_.output.resume,
          "none, auto (the newest checkpoint in --out), or the folder of a checkpoint or run");
    value("--init-from", o_.output.init_from,
          "start a new run from the parameters of this checkpoint; with --resume auto, only where "
          "--out has none yet");
    number("--log-every", o_.output.log_every, kPositiveCount,
           "steps between lines on the console");
    number("--eval-every", o_.output.eval_every, kCount,
           "steps between evaluations on the validation data; 0: never");
    number("--save-every", o_.output.save_every, kCount,
           "steps between checkpoints; 0: only at the end");
    choice("--save-dtype", o_.output.save_dtype, kFormats,
           "bf16 or fp16: each checkpoint also holds its parameters in 16 bits, for other tools");
    number("--keep", o_.output.keep, kCount, "how many of the newest checkpoints to keep; 0: all");
    value("--sample", o_.output.sample, "text for the trained model to continue at the end");
    flag("--quiet", o_.output.is_quiet, "print nothing on the console");
  }

  void add_simulated_ranks() {
    group_ = "Oracle";
    number("--simulate-ranks", o_.simulate_ranks, {1, kMostRanks},
           "play this many ranks in one process, adding up in their order");
    choice("--fold", o_.fold,
           {{"microbatches-first", Fold::kMicrobatchesFirst}, {"ranks-first", Fold::kRanksFirst}},
           "order of sums: over a rank's microbatches first, or over the ranks first");
  }

  void add_reference() {
    group_ = "Reference";
    value(
        "--save-reference", o_.save_reference,
        "new folder for this run's numbers and parameters, to compare later steps with; a stopped "
        "run is kept once it has been resumed and has ended");
  }

  void add_cuda_graphs() {
    group_ = "CUDA graphs";
    value("--cuda-graphs", o_.uses_cuda_graphs,
          "true: record what a GPU does for a microbatch, and launch the recording from then on");
  }

  void add_buckets() {
    group_ = "Buckets";
    value("--bucket-mb", o_.bucket_mb, "capacity of a gradient bucket in MiB; 0.0625 is 64 KiB");
  }

  void add_prefetch() {
    group_ = "Prefetch";
    number("--prefetch", o_.prefetch, {0, 2},
           "units whose parameters are gathered ahead of the one in use: 0, 1 or 2");
  }

  void add_pipeline() {
    group_ = "Pipeline";
    number("--pipeline-stages", o_.pipeline.num_stages, {0, kMostRanks},
           "stages into which the model is cut; ranks / stages replicas; 0: one stage per rank");
    choice("--pipeline-schedule", o_.pipeline.schedule,
           {{"gpipe", Schedule::kGpipe},
            {"1f1b", Schedule::k1f1b},
            {"interleaved", Schedule::kInterleaved},
            {"zero-bubble", Schedule::kZeroBubble}},
           "order of forwards and backwards");
    number("--chunks-per-stage", o_.pipeline.chunks_per_stage, {1, kMostRanks},
           "pieces of the model on each stage; interleaved needs 2 or more");
    number("--accumulation", o_.pipeline.accumulation, kRows,
           "runs of the pipeline (flushes) per optimizer step, --num-microbatches in each");
    number("--local-batch-size", o_.pipeline.local_batch_size, {0, kMostRows},
           "rows per flush and replica, instead of --num-microbatches; a multiple of "
           "--micro-batch-size");
    number("--docs-per-step", o_.pipeline.docs_per_step, {0, kMostRows},
           "fetch microbatches until all replicas together have this many documents: one optimizer "
           "step; 0: off");
  }

  void add_diloco() {
    group_ = "DiLoCo";
    DilocoOptions& o = o_.diloco;
    number("--sync-every", o.sync_every, {1, kLongestRound},
           "inner steps between two averages of the same fragment of the model");
    number("--fragments", o.num_fragments, {1, kLongestRound},
           "parts of the model that take turns; one is averaged every --sync-every / --fragments "
           "inner steps");
    number("--sync-delay", o.sync_delay, kCount,
           "inner steps for which training goes on while an average is in flight");
    number("--alpha", o.alpha, kShare,
           "share of its own parameters that a worker keeps in an outer step, 0 to 1");
    number("--outer-lr", o.outer_lr, kNotNegative,
           "learning rate of the outer optimizer, Nesterov's SGD");
    number("--outer-momentum", o.outer_momentum, kDecayRate, "its momentum");
    choice(
        "--wire", o.wire,
        {{"fp32", WireFormat::kFp32}, {"bf16", WireFormat::kBf16}, {"int8", WireFormat::kInt8}},
        "what an average travels as: exact, in half the bytes, or in a quarter, where each block "
        "of 256 values shares a scale; workers train in fp32 all the same");
  }

  void add_elastic() {
    group_ = "Workers that may die";
    ElasticOptions& o = o_.elastic;
    value(
        "--elastic", o.lighthouse,
        "HOST:PORT of the lighthouse, where workers that are started one by one meet; without it, "
        "the workers are the ranks of this run");
    number("--worker", o.worker, {0, kMostRanks - 1},
           "this worker's number, which decides its part of the data");
    number("--workers", o.num_workers, {1, kMostRanks},
           "how many parts the data has; not all need to be there");
    number("--min-workers", o.min_workers, {1, kMostRanks},
           "fewer workers than these do not average: they wait");
    value("--join-timeout", o.join_timeout_s,
          "seconds that a round waits for a worker that still trains or heals; more than an inner "
          "step, an evaluation or a save takes");
    value("--round-timeout", o.round_timeout_s,
          "seconds that an average and the vote on it may take; then the round has failed");
    value("--patience", o.patience_s,
          "seconds without a committed round after which a worker gives up: it saves and stops");
    choice("--merge", o.merge, {{"equal", Merge::kEqual}, {"tokens", Merge::kTokens}},
           "what a worker's part of the average weighs: as much as any other, or its tokens");
    value("--elastic-key", o.key_file,
          "file with the keys that all workers share (elastic_lighthouse --make-key FILE); without "
          "it they listen on this machine only");
  }

  void add_objective() {
    group_ = "Objective";
    ObjectiveOptions& o = o_.objective;
    choice("--objective", o.kind,
           {{"lm", ObjectiveKind::kLanguageModel},
            {"dpo", ObjectiveKind::kDpo},
            {"self_distillation", ObjectiveKind::kSelfDistillation}},
           "next token; pairs of a better and a worse answer; or agreement with a teacher");
    number("--dpo-beta", o.dpo.beta, kPositive, "how strongly the model is held to the reference");
    number("--dpo-label-smoothing", o.dpo.label_smoothing, {0, 0.5},
           "share of pairs presumed to be labeled the wrong way round, 0 to 0.5");
    choice("--dpo-unit", o.dpo.unit, {{"pairs", DpoUnit::kPairs}, {"tokens", DpoUnit::kTokens}},
           "mean over pairs; or over answer tokens, where a pair counts by the number of its own");
    value("--dpo-reference", o.dpo.reference,
          "checkpoint of the frozen model to compare with, the same in every part of a run that is "
          "resumed; default: that of --init-from");
    value("--dpo-reference-cache", o.dpo.cache,
          "file that keeps the frozen model's log-probabilities: computed once for all pairs, then "
          "read");
    number("--prototypes", o.distillation.prototypes, {2, kMostTokenIds},
           "K: the model's first K outputs, averaged over positions, score a sample");
    number("--student-temperature", o.distillation.student_temperature, kPositive,
           "divides the student's scores");
    number("--teacher-temperature", o.distillation.teacher_temperature, kPositive,
           "divides the teacher's scores before they are balanced");
    number("--teacher-momentum", o.distillation.teacher_momentum, kShare,
           "what the teacher keeps of itself in each optimizer step, 0 to 1");
    number("--view-noise", o.distillation.view_noise, kShare,
           "share of tokens that each view replaces by random ones, 0 to 1");
    choice(
        "--sinkhorn-scope", o.distillation.scope,
        {{"microbatch", SinkhornScope::kMicrobatch}, {"batch", SinkhornScope::kBatch}},
        "samples over which the teacher's assignment is balanced: a microbatch, of two samples or "
        "more (an epoch's last one is left out if it would be alone); or a whole step");
  }

  void remember(const char* name, const Json& value) { values_[name + 2] = value; }

  CLI::App& app_;
  TrainOptions& o_;
  Json values_ = Json::object();
  std::vector<std::function<void()>> checks_;
  std::string group_;
};

}  // namespace

Json add_options(CLI::App& parser, TrainOptions& options) {
  OptionTable table(parser, options);
  table.add_all();
  return table.values();
}

void check_ranges(TrainOptions options) {
  CLI::App parser;
  OptionTable table(parser, options);
  table.add_all();
  table.check_ranges();
}

Json to_json(const TrainOptions& options) {
  TrainOptions copy = options;
  CLI::App parser;
  return add_options(parser, copy);
}

}  // namespace ladder
