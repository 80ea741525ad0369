#include "step9_diloco/diloco_options.hpp"

#include "common/train/options/option_table.hpp"

namespace ladder {

void DilocoOptions::declare(OptionTable& table) {
  constexpr std::int64_t kLongestRound = 1'000'000;  // of inner steps
  table.heading("DiLoCo");
  table.number("--sync-every", sync_every, {1, kLongestRound},
               "inner steps between two averages of the same fragment of the model");
  table.number("--fragments", num_fragments, {1, kLongestRound},
               "parts of the model that take turns; one is averaged every --sync-every / "
               "--fragments inner steps");
  table.number("--sync-delay", sync_delay, kCount,
               "inner steps for which training goes on while an average is in flight");
  table.number("--alpha", alpha, kShare,
               "share of its own parameters that a worker keeps in an outer step, 0 to 1");
  table.number("--outer-lr", outer_lr, kNotNegative,
               "learning rate of the outer optimizer, Nesterov's SGD");
  table.number("--outer-momentum", outer_momentum, kDecayRate, "its momentum");
  table.choice(
      "--wire", wire,
      {{"fp32", WireFormat::kFp32}, {"bf16", WireFormat::kBf16}, {"int8", WireFormat::kInt8}},
      "what an average travels as: exact, in half the bytes, or in a quarter, where each block "
      "of 256 values shares a scale; workers train in fp32 all the same");
}

void DilocoOptions::finalize(TrainOptions& options) {
  check_usage(num_fragments <= sync_every, "--fragments ", num_fragments,
              " is more than --sync-every ", sync_every,
              ": each fragment needs an inner step of its own");
  check_usage(sync_every % num_fragments == 0, "--sync-every ", sync_every,
              " is not divisible by --fragments ", num_fragments, ": all rounds are equally long");
  check_usage(
      wire == WireFormat::kFp32 || options.gradient_sum == SumMode::kOrdered,
      "--gradient-sum exact does not go with --wire: sums of bf16 or int8 are in the order of "
      "the workers");
  const std::int64_t length = steps_per_round(*this);
  check_usage(sync_delay < length, "--sync-delay is ", sync_delay, ", it must be from 0 to ",
              length - 1, ": one fragment is in flight at a time, and a round has ", length,
              " inner steps (--sync-every / --fragments)");
  check_usage(options.num_steps % length == 0, "--steps ", options.num_steps,
              " ends in the middle of a round of ", length,
              " inner steps (--sync-every / --fragments), whose work would be lost: choose a "
              "multiple of ",
              length);
}

}  // namespace ladder
