#include "common/train/options/options.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

#include "common/comm/launcher_environment.hpp"
#include "common/comm/link.hpp"
#include "common/core/check.hpp"
#include "common/data/tokenizer_source.hpp"
#include "common/train/options/option_table.hpp"
#include "common/train/options/option_values.hpp"

namespace ladder {

namespace {

// The formats of parameters and gradients.
void check_precision(const TrainOptions& options) {
  const Precision& precision = options.model.precision;
  check_usage(precision.grads == NumberFormat::kFp32 || precision.grads == precision.params,
              "--grad-dtype ", format_name(precision.grads), " goes with --precision ",
              format_name(precision.grads), ", but parameters are ", format_name(precision.params),
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
}

// An option that a transport cannot have, in a run that has it.
struct Conflict {
  Transport transport;
  bool is_given;
  std::string option, why;
};

void check_transport(const TrainOptions& options) {
  const OutputOptions& output = options.output;
  const std::string values = "the other ranks' values are made up, so the model means nothing";
  const std::string alone = "there is no other rank to hear from";
  const auto simulated = Transport::kSimulated;
  const std::vector<Conflict> conflicts = {
      {Transport::kNccl, !options.device.is_cuda(), "--device cpu",
       "it carries tensors on GPUs; give --device cuda as well"},
      {Transport::kNccl, !options.link.empty() || !options.outer_link.empty(),
       options.link.empty() ? "--outer-link " + options.outer_link : "--link " + options.link,
       "it slows messages down that pass through the host, and NCCL's do not; leave it out, or use "
       "--transport mpi"},
      {Transport::kThreads, options.device.is_cuda(), "--device cuda",
       concat("libtorch computes all backward passes of a GPU on one thread, on which ranks would "
              "wait for each other; start processes, which may share the GPU: mpirun -n ",
              options.num_ranks, ", or ./ladder train ", options.step, " --ranks ",
              options.num_ranks)},
      {Transport::kThreads, options.memory_cap_mb != 0,
       concat("--memory-cap-mb ", options.memory_cap_mb),
       "it limits the memory of a rank, and all ranks share that of one process; leave it out, or "
       "use --transport mpi"},
      {simulated, output.save_every != 0, "--save-every", values},
      {simulated, output.resume != "none", "--resume", values},
      {simulated, output.eval_every != 0, "--eval-every", values},
      {simulated, !output.sample.empty(), "--sample", values},
      {simulated, !output.trace.empty(), "--trace", alone},
      {simulated, options.check_collectives_s != 0, "--check-collectives", alone},
      {simulated, options.device.is_cuda(), "--device cuda", "it answers on the CPU"}};
  for (const auto& [transport, is_given, option, why] : conflicts)
    check_usage(transport != options.transport || !is_given, option, " is not for --transport ",
                to_string(transport), ": ", why);
}

void check_network(const TrainOptions& options) {
  cluster_of(options);  // which reads the links
  check_usage(options.ranks_per_machine >= 0 && options.ranks_per_machine <= kMostRanks,
              "--ranks-per-machine is ", options.ranks_per_machine, ", it must be at most ",
              kMostRanks, ", or 0 for those that the launcher starts on each");
  const bool has_machines = options.ranks_per_machine > 0;
  check_usage(has_machines || options.outer_link.empty(), "--outer-link ", options.outer_link,
              " connects machines, and without --ranks-per-machine all ranks are on one: say how "
              "many share a machine");
  check_usage(!has_machines || options.link.empty() || !options.outer_link.empty(), "--link ",
              options.link, " connects the ranks of a machine: with --ranks-per-machine ",
              options.ranks_per_machine, ", say what connects machines with --outer-link");
}

// Who starts the ranks, and which of them this process is.
void check_ranks(const TrainOptions& options) {
  const int num_ranks = options.num_ranks, rank = options.simulated_rank;
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
  check_usage(is_simulated(options) || rank == 0, "--rank ", rank,
              " is for --transport simulated, where this process is one rank of --ranks");
  check_usage(!is_simulated(options) || (0 <= rank && rank < num_ranks), "--rank is ", rank,
              ", but --ranks ", num_ranks, " are numbered from 0 to ", num_ranks - 1);
}

}  // namespace

BatchShape batch_shape(const TrainOptions& options) {
  BatchShape batch = {.rows = options.data.rows};
  options.own.shape_batch(batch);
  return batch;
}

std::int64_t microbatches_per_step(const TrainOptions& options) {
  return options.data.num_microbatches * batch_shape(options).flushes_per_step;
}

// What exact sums cannot be had with in any step.
void check_gradient_sum(const TrainOptions& options) {
  const std::int64_t wanted = options.data.step_microbatches;
  if (options.gradient_sum == SumMode::kOrdered) {
    check_usage(
        wanted == 0, "--microbatches-per-step ", wanted,
        " deals whole microbatches to any number of ranks, whose sums are the same on each "
        "only with --gradient-sum exact: give that too, or --num-microbatches for each rank");
    return;
  }
  check_usage(options.model.precision.grads == NumberFormat::kFp32,
              "--gradient-sum exact does not go with --grad-dtype: sums of 16-bit numbers are not "
              "exact");
}

Cluster cluster_of(const TrainOptions& options) {
  const auto read = [](const std::string& text, const char* option) {
    return text.empty() ? Link() : parse_link(text, option);
  };
  return {.links = {read(options.link, "--link"), read(options.outer_link, "--outer-link")},
          .ranks_per_machine = options.ranks_per_machine};
}

void check_together(const TrainOptions& options) {
  check_gradient_sum(options);
  check_usage(options.lr.min_lr <= options.lr.lr, "--min-lr ", options.lr.min_lr,
              " is more than --lr ", options.lr.lr,
              ", from which the learning rate falls: lower it");
  check_usage(options.memory_cap_mb == 0 ||
                  (options.memory_cap_mb * 1024 * 1024 >= 1 && options.memory_cap_mb <= 1 << 30),
              "--memory-cap-mb is ", options.memory_cap_mb,
              ", it must be 0 (no cap), or at least one byte and at most a PiB");
  check_network(options);
  check_ranks(options);
  check_transport(options);
  check_precision(options);
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

std::int64_t microbatches_of_all(const TrainOptions& options, std::int64_t num_replicas) {
  if (options.data.step_microbatches > 0) return options.data.step_microbatches;
  return microbatches_per_step(options) * num_replicas * batch_shape(options).replicas_per_rank;
}

std::int64_t rows_per_step(const TrainOptions& options, std::int64_t num_replicas) {
  return options.data.microbatch_size * microbatches_of_all(options, num_replicas);
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
  return options.model.precision.params == NumberFormat::kFp16;
}

std::int64_t memory_cap_bytes(const TrainOptions& options) {
  return static_cast<std::int64_t>(options.memory_cap_mb * 1024 * 1024);
}

void StepOptions::keep_only(const StepOptions& wanted) {
  StepOptions kept = wanted;
  for (Struct& each : kept.structs_) {
    const auto own = std::find_if(structs_.begin(), structs_.end(), [&](const Struct& mine) {
      return mine.values.type() == each.values.type();
    });
    if (own != structs_.end()) each = *own;
  }
  *this = std::move(kept);
}

void StepOptions::declare(OptionTable& table) {
  for (Struct& each : structs_) each.declare(each.values, table);
}

void StepOptions::finalize(TrainOptions& options) {
  for (Struct& each : structs_) each.finalize(each.values, options);
}

void StepOptions::shape_batch(BatchShape& batch) const {
  for (const Struct& each : structs_) each.shape_batch(each.values, batch);
}

}  // namespace ladder
