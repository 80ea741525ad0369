// Judges the arithmetic of exact sums: each function on numbers whose answer is known, then all
// three in step 3's trainer, on 1, 2, 3 and 6 ranks. The ranks are threads.
#include <cmath>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "common/comm/threads/run_as_threads.hpp"
#include "common/core/check.hpp"
#include "common/optim/quanta.hpp"
#include "common/testing/draw.hpp"
#include "common/testing/examination.hpp"
#include "common/testing/judge_main.hpp"
#include "common/testing/plain_words.hpp"
#include "common/testing/temp_folder.hpp"
#include "common/train/start.hpp"
#include "step0_single_gpu/judge/cases.hpp"
#include "step0_single_gpu/judge/comparison.hpp"
#include "step3_naive_dp/train.hpp"

namespace ladder {
namespace exact_sums {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNotANumber = std::numeric_limits<float>::quiet_NaN();
constexpr std::int64_t kSix = 6;  // microbatches in a step

float power_of_2(int exponent) {
  return std::ldexp(1.0F, exponent);
}

// "2^-17" where it is one.
std::string text_of(float number) {
  int exponent = 0;
  const bool is_power = std::isfinite(number) && std::frexp(number, &exponent) == 0.5F;
  return is_power ? concat("2^", exponent - 1) : concat(number);
}

std::string text_of(Learned learned) {
  if (learned == Learned::kNothing) return "kNothing";
  return learned == Learned::kLargerQuanta ? "kLargerQuanta" : "kNextQuanta";
}

class Checks : public Examination {
 public:
  using Examination::Examination;

  void divides_the_range() {
    for (const auto& [num_microbatches, exponent] :
         {std::pair{1, 22}, {2, 22}, {3, 21}, {4, 21}, {6, 20}, {24, 18}, {1000, 13}, {1024, 13}})
      expect(concat("share_of_range(", num_microbatches, ")"),
             text_of(share_of_range(num_microbatches)), text_of(power_of_2(exponent)));
  }

  // More microbatches than above, and numbers of all sizes up to their share; halves rarely occur.
  void divides_and_rounds_any(Draw& draw) {
    const std::int64_t num_microbatches = draw.number(1025, 100000);
    const int exponent = static_cast<int>(draw.number(-30, 10));
    const std::string what =
        draw.announce(concat(num_microbatches, " microbatches and a quantum of 2^", exponent));
    examine_next(what, [&](Communicator&) {
      const float quantum = power_of_2(exponent);
      float share = power_of_2(22);
      while (2.0 * static_cast<double>(num_microbatches) * share > std::ldexp(1, 24)) share /= 2;
      expect(concat("share_of_range(", num_microbatches, ")"),
             text_of(share_of_range(num_microbatches)), text_of(share));
      std::vector<float> values, wanted;
      for (int i = 0; i < 100; ++i) {
        const double quanta = static_cast<double>(draw.number(-999, 999)) / 1000 * share *
                              std::ldexp(1, -static_cast<int>(draw.number(0, 20)));
        values.push_back(static_cast<float>(quanta) * quantum);
        wanted.push_back(std::nearbyint(values.back() / quantum) * quantum);
      }
      expect_rounded(values, quantum, share, wanted);
    });
  }

  // A share of 64 quanta of 1/4 reaches up to 16.
  void rounds() {
    expect_rounded({1, 1.1F, 1.2F, -1.1F, -1.2F, 0.1F, -0.2F, 0, 1e-30F, 16, -16}, 0.25F, 64,
                   {1, 1, 1.25F, -1, -1.25F, 0, -0.25F, 0, 0, 16, -16});
    expect_rounded({1.125F, 1.375F, -1.125F, -1.375F}, 0.25F, 64, {1, 1.5F, -1, -1.5F});
    for (const float value : {16.3F, -16.3F, 1e30F, -1e30F})
      expect_rounded({value}, 0.25F, 64, {kInfinity});
    for (const float value : {kInfinity, -kInfinity, kNotANumber})
      expect_rounded({value}, 0.25F, 64, {kNotANumber});
    expect_rounded({0.3F, 17, 0.4F, 15}, 0.25F, 64, {0.25F, kInfinity, 0.5F, 15});
    for (const int exponent : {-126, -40, 100}) {  // the smallest, the first, the largest
      const float quantum = power_of_2(exponent), most = power_of_2(22);
      expect_rounded({3 * quantum, -most * quantum, 2.75F * quantum}, quantum, most,
                     {3 * quantum, -most * quantum, 3 * quantum});
    }
  }

  void learns_from_a_step() {
    // 2^9 in the first unit's norm: its floor is just above 2. For six microbatches the range is
    // 2^7 times the norm.
    expect_learned("norms of 2^9, 3, 2^-20 and 0, and of another unit 3", kSix,
                   {{power_of_2(18), 9, power_of_2(-40), 0}, {9}}, {{0, 0, 0, 0}, {0}},
                   {{-8, -15, -15, -15}, {-15}}, Learned::kNextQuanta);
    for (const auto& [num_microbatches, exponent] :
         {std::pair{1, -19}, {2, -18}, {4, -18}, {5, -17}, {24, -16}, {1024, -14}})
      expect_learned(concat("a norm of 1, with M = ", num_microbatches), num_microbatches, {{1}},
                     {{0}}, {{exponent}}, Learned::kNextQuanta);
    expect_learned("a norm of 1, after one of 2^20", kSix, {{1}}, {{3}}, {{-17}},
                   Learned::kNextQuanta);
    expect_learned("norms of 2^-140, and of another unit 2^120", kSix,
                   {{std::ldexp(1, -280)}, {std::ldexp(1, 240)}}, {{-50}, {-50}}, {{-126}, {100}},
                   Learned::kNextQuanta);
    expect_learned("a norm of 1, with two blocks of padding", kSix, {{1, 0, 0}, {1}}, {{0}, {0}},
                   {{-17}, {-17}}, Learned::kNextQuanta);
    expect_learned("a unit without a gradient", kSix, {{0, 0}, {1}}, {{-3, -4}, {-5}},
                   {{-3, -4}, {-17}}, Learned::kNextQuanta);
    expect_learned("no gradient at all", kSix, {{0, 0}, {0}}, {{-3, -4}, {-5}}, {{-3, -4}, {-5}},
                   Learned::kNothing);
  }

  void grows_what_was_too_small() {
    expect_learned("an infinite second block, and of another unit a norm of 1", kSix,
                   {{1, kInfinity, 1}, {1}}, {{-30, -31, -32}, {-33}}, {{-30, -23, -32}, {-33}},
                   Learned::kLargerQuanta);
    expect_learned("an infinite second unit", kSix, {{1, 1}, {kInfinity}}, {{-30, -31}, {-32}},
                   {{-30, -31}, {-24}}, Learned::kLargerQuanta);
    expect_learned("a block that is not a number, and of another unit an infinite one", kSix,
                   {{1, kNotANumber}, {kInfinity}}, {{-30, -31}, {-32}}, {{-30, -31}, {-32}},
                   Learned::kNothing);
  }

  // Six microbatches in each step, on any number of ranks.
  void trains_to_one_hash() {
    const FinishedRun alone = {"1 rank", train_on(1, SumMode::kExact)};
    for (const int num_ranks : {2, 3, 6}) {
      const FinishedRun run = {concat(num_ranks, " ranks"), train_on(num_ranks, SumMode::kExact)};
      for (const std::string& line : differences(run, alone)) fault(line);
      expect(concat("on ", num_ranks, " ranks, the number of repeated steps"),
             run.report.repeated_steps, alone.report.repeated_steps);
    }
    // That all ranks have the same bits does not say that they are good ones.
    const double found = alone.report.losses.back(),
                 wanted = train_on(1, SumMode::kOrdered).losses.back();
    if (!(std::abs(found - wanted) <= kLossTolerance * wanted))
      fault(concat("the loss after ", kNumSteps, " steps is ", found, "; with ordered sums it is ",
                   wanted));
  }

 private:
  static constexpr std::int64_t kNumSteps = 12;
  static constexpr double kLossTolerance = 1e-4;

  void expect_rounded(std::vector<float> values, float quantum, float share,
                      const std::vector<float>& wanted) {
    const std::vector<float> before = values;
    round_block(values.data(), std::ssize(values), quantum, share);
    for (std::size_t i = 0; i < values.size(); ++i) {
      if (values[i] == wanted[i] || (std::isnan(values[i]) && std::isnan(wanted[i]))) continue;
      fault(concat("with a quantum of ", text_of(quantum), " and a share of ", text_of(share),
                   " quanta, ", before[i], " becomes ", values[i], ", not ", wanted[i]));
    }
  }

  // Exponents of the quanta before and after.
  void expect_learned(const std::string& what, std::int64_t num_microbatches,
                      const std::vector<std::vector<double>>& sums,
                      const std::vector<std::vector<int>>& before,
                      const std::vector<std::vector<int>>& after, Learned wanted) {
    examine_next("learn_quanta() from " + what, [&](Communicator&) {
      std::vector<std::vector<float>> quanta;
      for (const std::vector<int>& unit : before) {
        quanta.emplace_back();
        for (const int exponent : unit) quanta.back().push_back(power_of_2(exponent));
      }
      std::vector<UnitQuanta> units;
      for (std::size_t i = 0; i < sums.size(); ++i) units.push_back({sums[i], quanta[i]});
      expect(concat("learn_quanta() from ", what), text_of(learn_quanta(units, num_microbatches)),
             text_of(wanted));
      for (std::size_t i = 0; i < quanta.size(); ++i) {
        for (std::size_t k = 0; k < quanta[i].size(); ++k)
          expect(concat("learned from ", what, ": quantum ", k, " of unit ", i),
                 text_of(quanta[i][k]), text_of(power_of_2(after[i][k])));
      }
    });
  }

  // Rank 0's report.
  static TrainReport train_on(int num_ranks, SumMode mode) {
    static const TempFolder folder;
    static const std::string text = CaseTexts(folder.path()).windows;
    TrainOptions options;
    options.num_steps = kNumSteps;
    options.model = {.context = 12, .layers = 1, .heads = 2, .channels = 16};
    options.data.source = options.data.validation_source = text;
    options.data.microbatch_size = 1;
    options.data.num_microbatches = kSix / num_ranks;
    options.gradient_sum = mode;
    options.lr = {.lr = 0.01};
    options.output.is_quiet = true;
    options = options_for(step3::trainer(), options);
    TrainReport report;
    run_as_threads(num_ranks, [&](Communicator& comm) {
      throw_in_plain_words([&] {
        TrainReport own = step3::trainer().train(options, comm);
        if (comm.rank() == 0) report = std::move(own);
      });
    });
    return report;
  }
};

}  // namespace
}  // namespace exact_sums

std::vector<std::string> judge_linked(Communicator& comm) {
  exact_sums::Checks checks(comm);
  checks.examine_next("share_of_range()", &exact_sums::Checks::divides_the_range);
  checks.examine_next("round_block()", &exact_sums::Checks::rounds);
  Draw draw(comm);
  checks.divides_and_rounds_any(draw);
  checks.learns_from_a_step();
  checks.grows_what_was_too_small();
  checks.examine_next("training", &exact_sums::Checks::trains_to_one_hash);
  return checks.faults();
}

}  // namespace ladder
