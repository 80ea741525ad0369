#include "common/train/options.hpp"

#include "common/core/check.hpp"
#include "common/data/tokenizer.hpp"

namespace ladder {

void finalize(TrainOptions& options) {
  options.model.vocab_size =
      options.data.vocab_size > 0 ? options.data.vocab_size : ByteTokenizer::kVocabSize;
  options.data.context = options.model.context;
  options.data.seed = options.seed;
  validate(options.model);
  const auto at_least = [](const char* name, auto value, auto limit) {
    check_usage(value >= limit, name, " is ", value, ", it must be at least ", limit);
  };
  const auto rows = {options.data.microbatch_size, options.data.num_microbatches,
                     options.simulate_ranks};
  std::int64_t tokens = options.model.context;
  for (const std::int64_t factor : rows) {
    check_usage(!__builtin_mul_overflow(tokens, factor, &tokens), "--micro-batch-size ",
                options.data.microbatch_size, " times --num-microbatches ",
                options.data.num_microbatches, " times --simulate-ranks ", options.simulate_ranks,
                " times --context ", options.model.context, " is more tokens than can be counted");
  }
  at_least("--steps", options.num_steps, 0);
  at_least("--threads", options.num_threads, 1);
  at_least("--micro-batch-size", options.data.microbatch_size, 1);
  at_least("--num-microbatches", options.data.num_microbatches, 1);
  at_least("--eval-samples", options.data.validation_samples, 0);
  at_least("--vocab-size", options.data.vocab_size, 0);
  at_least("--simulate-ranks", options.simulate_ranks, 1);
  at_least("--log-every", options.output.log_every, 1);
  at_least("--eval-every", options.output.eval_every, 0);
  at_least("--save-every", options.output.save_every, 0);
  at_least("--keep", options.output.keep, 0);
  at_least("--lr", options.lr.lr, 0.0);
  at_least("--min-lr", options.lr.min_lr, 0.0);
  at_least("--warmup-steps", options.lr.warmup_steps, 0);
  at_least("--weight-decay", options.optimizer.weight_decay, 0.0);
  at_least("--clip-norm", options.clip_norm, 0.0);
  check_usage(options.memory_cap_mb == 0 ||
                  (options.memory_cap_mb * 1024 * 1024 >= 1 && options.memory_cap_mb <= 1 << 30),
              "--memory-cap-mb is ", options.memory_cap_mb,
              ", it must be 0 (no cap), or at least one byte and at most a PiB");
  check_usage(options.prefetch >= 0 && options.prefetch <= 2, "--prefetch is ", options.prefetch,
              ", it must be 0, 1 or 2");
  check_usage(options.bucket_mb * 1024 * 1024 >= 1 && options.bucket_mb <= 1 << 20,
              "--bucket-mb is ", options.bucket_mb,
              ", it must be at least one byte, and at most a TiB");
  if (!options.link.empty()) parse_link(options.link);
  check_usage(options.optimizer.eps > 0, "--eps is ", options.optimizer.eps,
              ", it must be positive");
  for (const auto& [name, beta] :
       {std::pair{"--beta1", options.optimizer.beta1}, {"--beta2", options.optimizer.beta2}}) {
    check_usage(beta >= 0 && beta < 1, name, " is ", beta, ", it must lie in [0, 1)");
  }
  check_usage(options.output.eval_every == 0 || options.data.source == "corpus" ||
                  !options.data.validation_source.empty(),
              "--eval-every ", options.output.eval_every,
              " needs validation data: give --val-data as well as --data ", options.data.source);
  check_usage(options.output.resume != "auto" || !options.output.out.empty(),
              "--resume auto continues from the newest checkpoint in --out: give --out");
  check_usage(options.output.init_from.empty() || options.output.resume == "none",
              "--init-from starts a new run, --resume ", options.output.resume,
              " continues an old one: give only one of them");
  check_usage(options.output.sample.empty() || options.data.vocab_size == 0,
              "--sample continues text, but --vocab-size ", options.data.vocab_size,
              " says that the data consist of token ids");
}

std::int64_t memory_cap_bytes(const TrainOptions& options) {
  return static_cast<std::int64_t>(options.memory_cap_mb * 1024 * 1024);
}

std::int64_t bucket_capacity_bytes(const TrainOptions& options) {
  return static_cast<std::int64_t>(options.bucket_mb * 1024 * 1024);
}

}  // namespace ladder
