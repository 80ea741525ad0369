#include "common/train/options/options.hpp"

#include <cmath>

#include "common/comm/launcher_environment.hpp"
#include "common/core/check.hpp"
#include "common/data/tokenizer_source.hpp"
#include "common/model/build_layers.hpp"
#include "common/train/options/option_table.hpp"
#include "common/train/options/shape_options.hpp"
#include "common/train/pretrained/pretrained.hpp"

namespace ladder {

namespace {

// What --model names, but for the options that the user has given as well. Its vocabulary may be
// larger than the data's.
void finalize_model(TrainOptions& options) {
  ModelOptions& model = options.model;
  if (options.given.contains("model")) model.family = family_of(options.named_model);
  const bool has_shape = starts_with_shape(options);
  // Token ids of which only the model says how many there are.
  const bool is_told_by_model =
      has_shape && has_unknown_tokens(options.data) && options.data.vocab_size == 0;
  if (!has_shape && has_unknown_tokens(options.data) && options.data.vocab_size == 0)
    check_start(options);  // which is why --vocab-size would be asked for
  const std::int64_t data_vocab = is_told_by_model ? 0 : vocab_size_of(options.data);
  model.vocab_size = data_vocab;
  if (has_shape) {
    take_shape(options);
    if (is_told_by_model) options.data.vocab_size = model.vocab_size;
  } else if (const std::optional<ModelOptions> shape = shape_of(options.named_model)) {
    visit_shape(model, *shape, [&](const char* option, auto& member, const auto& value) {
      if (!options.given.contains(option)) member = value;
    });
    model.vocab_size = shape->vocab_size;
    check_usage(data_vocab <= model.vocab_size, "--vocab-size ", data_vocab,
                " is more than the model of --model has, which knows ", model.vocab_size,
                " tokens; take data with fewer, or leave --model out and give a shape");
  }
  if (!options.given.contains("model")) options.named_model = named_model(model.family);
  validate(model);
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

// A simulated rank is alone, and has no values of the others.
void finalize_simulated(const TrainOptions& options) {
  const int rank = options.simulated_rank;
  check_usage(is_simulated(options) || rank == 0, "--rank ", rank,
              " is for --transport simulated, where this process is one rank of --ranks");
  if (!is_simulated(options)) return;
  check_usage(0 <= rank && rank < options.num_ranks, "--rank is ", rank, ", but --ranks ",
              options.num_ranks, " are numbered from 0 to ", options.num_ranks - 1);
  const OutputOptions& output = options.output;
  const auto refuse = [](bool is_given, const char* option, const char* why) {
    check_usage(!is_given, option, " is not for --transport simulated: ", why, "; leave it out");
  };
  const char* const values = "the other ranks' values are made up, so the model means nothing";
  refuse(output.save_every != 0, "--save-every", values);
  refuse(output.resume != "none", "--resume", values);
  refuse(output.eval_every != 0, "--eval-every", values);
  refuse(!output.sample.empty(), "--sample", values);
  refuse(!output.save_reference.empty(), "--save-reference", values);
  const char* const alone = "there is no other rank to hear from";
  refuse(!output.trace.empty(), "--trace", alone);
  refuse(options.check_collectives_s != 0, "--check-collectives", alone);
  refuse(options.device.is_cuda(), "--device cuda", "it answers on the CPU");
}

// Who starts the ranks.
void finalize_ranks(const TrainOptions& options) {
  const int num_ranks = options.num_ranks;
  const bool are_threads = options.transport == Transport::kThreads;
  const bool are_here = are_threads || is_simulated(options);
  check_usage(are_here || num_ranks == 0, "--ranks ", num_ranks,
              " is for --transport threads, which starts the ranks in this process, and for "
              "simulated; ranks that are processes are started by mpirun -n ",
              num_ranks, " or ./ladder train ", options.step, " --ranks ", num_ranks);
  check_usage(!are_here || num_ranks != 0, "--transport ", to_string(options.transport),
              " starts the ranks itself: give their number with --ranks N");
  check_usage(num_ranks >= 0 && num_ranks <= kMostRanks, "--ranks is ", num_ranks,
              ", it must be at least 1 and at most ", kMostRanks);
  constexpr int kMostTogether = 16384;
  check_usage(!are_threads || num_ranks * options.num_threads <= kMostTogether, "--ranks ",
              num_ranks, " with --threads ", options.num_threads, " is ",
              num_ranks * options.num_threads, " threads in one process, more than the ",
              kMostTogether, " that can be started");
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
  check_usage(!are_threads || options.memory_cap_mb == 0, "--memory-cap-mb ", options.memory_cap_mb,
              " limits the memory of a rank, but with --transport threads all ranks share that of "
              "one process; leave it out, or use --transport mpi");
  finalize_simulated(options);
}

}  // namespace

std::int64_t microbatches_per_step(const TrainOptions& options) {
  return options.data.num_microbatches * options.shape.flushes_per_step;
}

void finalize(TrainOptions& options) {
  check_ranges(options);
  options.derived.clear();
  options.data.pretrained = options.output.init_from;
  options.data.bpe = nullptr;  // of an earlier call
  if (!has_unknown_tokens(options.data)) options.data.bpe = read_tokenizer(options.data);
  finalize_model(options);
  options.data.context = options.model.context;
  options.data.seed = options.seed;
  options.data.is_pinned = options.device.is_cuda();
  options.shape = {.rows = options.data.rows};
  options.own.finalize(options);
  check_usage(options.memory_cap_mb == 0 ||
                  (options.memory_cap_mb * 1024 * 1024 >= 1 && options.memory_cap_mb <= 1 << 30),
              "--memory-cap-mb is ", options.memory_cap_mb,
              ", it must be 0 (no cap), or at least one byte and at most a PiB");
  if (!options.link.empty()) parse_link(options.link);
  finalize_ranks(options);
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
  check_usage(options.output.sample.empty() || !has_unknown_tokens(options.data),
              "--sample continues text, but --data ", options.data.source,
              " consists of token ids; name their tokenizer with --tokenizer");
}

std::int64_t rows_per_step(const TrainOptions& options, std::int64_t num_replicas) {
  return options.data.microbatch_size * microbatches_per_step(options) * num_replicas *
         options.shape.replicas_per_rank;
}

bool is_simulated(const TrainOptions& options) {
  return options.transport == Transport::kSimulated;
}

bool writes_for_all(const TrainOptions& options, int rank) {
  return rank == 0 || is_simulated(options);
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

}  // namespace ladder
