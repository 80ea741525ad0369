#include <gtest/gtest.h>

#include <memory>
#include <utility>

#include "common/comm/forwarding_communicator.hpp"
#include "common/core/check.hpp"
#include "common/testing/parse_options.hpp"
#include "common/testing/rank_test.hpp"
#include "common/testing/temp_folder.hpp"
#include "common/train/differences.hpp"
#include "step9_diloco/diloco_options.hpp"
#include "step9_diloco/train.hpp"
#include "step9_diloco/wire_format.hpp"

namespace ladder {
namespace {

// Makes no progress by itself, as MPI does not: a reduction of more than `eager_bytes` is done once
// test() has been called `num_tests` times since it started, on whichever operation, or in its own
// wait(). So num_waited_for() says exactly whether anybody has called test(), where a clock could
// only guess.
class LazyCommunicator : public ForwardingCommunicator {
 public:
  LazyCommunicator(Communicator& inner, int num_tests, std::size_t eager_bytes)
      : ForwardingCommunicator(inner), num_tests_needed_(num_tests), eager_bytes_(eager_bytes) {}

  WorkPtr start(const Operation& operation) override {
    WorkPtr work = inner_.start(operation);
    if (!operation.is_sum() || operation.tensor.nbytes() <= eager_bytes_) return work;
    ++num_started_;
    return std::make_unique<LazyWork>(std::move(work), *this);
  }

  int num_started() const { return num_started_; }
  int num_waited_for() const { return num_waited_for_; }  // not done before

 private:
  class LazyWork : public Work {
   public:
    LazyWork(WorkPtr inner, LazyCommunicator& comm)
        : inner_(std::move(inner)), comm_(comm), start_(comm.num_tests_) {}
    bool test() override {
      ++comm_.num_tests_;
      return has_been_tested() && inner_->test();
    }
    void wait() override {
      if (!has_been_tested()) ++comm_.num_waited_for_;
      inner_->wait();
    }

   private:
    bool has_been_tested() const { return comm_.num_tests_ - start_ >= comm_.num_tests_needed_; }

    WorkPtr inner_;
    LazyCommunicator& comm_;
    int start_;
  };

  int num_tests_needed_;
  std::size_t eager_bytes_;
  int num_tests_ = 0;  // of all operations
  int num_started_ = 0, num_waited_for_ = 0;
};

class DilocoCostCard : public RankTest {
 protected:
  // It saves every so many steps, but writes nothing.
  TrainOptions tiny_run(const DilocoOptions& rounds, std::int64_t save_every,
                        SumMode sums = SumMode::kOrdered) const {
    TrainOptions options;
    options.data.source = text_;
    options.step = "step9_diloco";
    options.num_steps = 12;
    options.model = {.context = 16, .layers = 1, .heads = 2, .channels = 20};
    options.data.microbatch_size = 1;
    options.data.num_microbatches = 1;
    options.set<DilocoOptions>() = rounds;
    options.gradient_sum = sums;
    options.output = {.save_every = save_every, .is_quiet = true};
    finalize(options);
    return options;
  }

  // The share of a run's averages that are done early, if its transport wants ten polls for each.
  double share_done_early(std::int64_t sync_delay) const {
    // The averages are larger, the round's records are not.
    constexpr std::size_t kEagerBytes = 4096;
    LazyCommunicator transport(comm_, /*num_tests=*/10, kEagerBytes);
    step9::train(tiny_run({.sync_every = 4, .sync_delay = sync_delay}, 0), transport);
    EXPECT_EQ(transport.num_started(), 3);
    return 1 - static_cast<double>(transport.num_waited_for()) / 3;
  }

 private:
  TempFolder folder_;
  const std::string text_ = folder_.write("text.txt", std::string(4000, 'a'));
};

TEST_ON_RANKS(DilocoCostCard, ARunSendsWhatItSaysInEachFormat) {
  struct Format {
    WireFormat wire;
    SumMode sums = SumMode::kOrdered;
  };
  for (const auto& [wire, sums] : std::vector<Format>{{WireFormat::kFp32},
                                                      {WireFormat::kBf16},
                                                      {WireFormat::kInt8},
                                                      {WireFormat::kFp32, SumMode::kExact}}) {
    for (const std::int64_t sync_delay : {0, 2}) {
      SCOPED_TRACE(concat("format ", static_cast<int>(wire), ", delay ", sync_delay));
      // It also saves while an average is in flight.
      const TrainOptions options = tiny_run(
          {.sync_every = 8, .num_fragments = 2, .sync_delay = sync_delay, .wire = wire}, 3, sums);
      const TrainReport report = step9::train(options, comm_);
      EXPECT_EQ(report.losses.size(), 12U);
      EXPECT_EQ(report.traffic,
                traffic_theory(step9::trainer(), options, steps_of(report), size_, rank_));
    }
  }
}

TEST_ON_RANKS(DilocoCostCard, ADelayHidesTheAverageIfTheTransportMustBePolled) {
  EXPECT_EQ(share_done_early(/*sync_delay=*/0), 0);
  EXPECT_EQ(share_done_early(1), 1);
  EXPECT_EQ(share_done_early(2), 1);
}

TEST(DilocoOptions, AWireHasOneOfThreeFormats) {
  const auto wire = [](const std::vector<const char*>& words) {
    return parse_words(step9::trainer(), words).options.get<DilocoOptions>().wire;
  };
  EXPECT_EQ(wire({}), WireFormat::kFp32);
  EXPECT_EQ(wire({"--wire", "bf16"}), WireFormat::kBf16);
  EXPECT_EQ(wire({"--wire", "int8"}), WireFormat::kInt8);
  expect_refused(step9::trainer(), {"--wire", "fp8"},
                 {"--wire is 'fp8', it must be fp32 or bf16 or int8"});
}

}  // namespace
}  // namespace ladder
