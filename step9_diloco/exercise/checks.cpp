// Judges the average over the workers and a round of DiLoCo, each without the other: a round gets
// an averager that is not the answer's. Then the trainer trains with both.
#include <ATen/ops/full.h>

#include <functional>
#include <limits>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "common/comm/contract/rank_values.hpp"
#include "common/comm/self_communicator.hpp"
#include "common/comm/traffic_theory.hpp"
#include "common/core/listed.hpp"
#include "common/core/memory_ledger.hpp"
#include "common/testing/draw.hpp"
#include "common/testing/examination.hpp"
#include "common/testing/judge_main.hpp"
#include "common/testing/recording_communicator.hpp"
#include "common/testing/temp_folder.hpp"
#include "common/train/differences.hpp"
#include "common/train/report/console.hpp"
#include "common/train/start.hpp"
#include "step0_single_gpu/judge/cases.hpp"
#include "step0_single_gpu/judge/comparison.hpp"
#include "step9_diloco/averager.hpp"
#include "step9_diloco/exercise/diloco_checks.hpp"
#include "step9_diloco/exercise/in_flight.hpp"
#include "step9_diloco/train.hpp"

namespace ladder {
namespace step9 {
namespace {

// The last of more workers than there are ranks, without the others: worker r has values_of(r).
class LastOfMany final : public ForwardingCommunicator {
 public:
  LastOfMany(Communicator& inner, int size) : ForwardingCommunicator(inner), size_(size) {}
  int rank() const override { return size_ - 1; }
  int size() const override { return size_; }
  WorkPtr start(const Operation& operation) override {
    check(operation.kind == CommOp::kAllReduce, "an average is an all_reduce");
    operation.tensor.copy_(fold_of_all(size_, operation.tensor.numel(), at::kFloat));
    return std::make_unique<DoneWork>();
  }

 private:
  int size_;
};

// Part 1: is this the average, and does training go on meanwhile? Each rank is a worker.
class AveragerChecks : public Examination {
 public:
  explicit AveragerChecks(Communicator& comm)
      : Examination(comm, "part 1", "averager.cpp"), draw_(comm) {}

  // Worker r has r + 1 everywhere.
  void averages() {
    const float mean = static_cast<float>(comm_.size() + 1) / 2;
    examine_averages(
        concat("workers that have 1 to ", comm_.size()),
        [](int rank, std::int64_t numel) { return at::full({numel}, rank + 1.0F); },
        [mean](std::int64_t numel) { return at::full({numel}, mean); });
  }

  // A worker that has learned nothing takes part all the same: the others wait for it.
  void averages_zeros() {
    const float mean = static_cast<float>(comm_.size() - 1) / static_cast<float>(comm_.size());
    examine_averages(
        "zeros on rank 0",
        [](int rank, std::int64_t numel) { return at::full({numel}, rank == 0 ? 0.0F : 1.0F); },
        [mean](std::int64_t numel) { return at::full({numel}, mean); });
  }

  void averages_over_many_workers() {
    const auto drawn = static_cast<int>(draw_.number(40, 300));
    for (const int num_workers : {9, 257, drawn}) {
      const std::string name = count_of(num_workers, "worker");
      examine(num_workers == drawn && faults().empty() ? draw_.announce(name) : name,
              [&](Communicator&) {
                SelfCommunicator alone;
                LastOfMany comm(alone, num_workers);
                GroupAverager averager(comm);
                const at::Tensor values = values_of(comm.rank(), kFew, at::kFloat);
                averager.start(values);
                expect_count(averager.finish(), num_workers);
                expect("the average", values,
                       fold_of_all(num_workers, kFew, at::kFloat) / num_workers);
              });
    }
  }

  // A worker that has diverged must not be hidden from the others.
  void averages_what_is_infinite() {
    const float infinity = std::numeric_limits<float>::infinity();
    examine_averages(
        "an infinite value on rank 0",
        [=](int rank, std::int64_t numel) {
          return at::full({numel}, rank == 0 ? infinity : 1.0F);
        },
        [=](std::int64_t numel) { return at::full({numel}, infinity); });
  }

  // The average is, to the bit, the tree's sum divided by N.
  void adds_up_as_the_tree() {
    examine_averages(
        "the order of the sum",
        [](int rank, std::int64_t numel) { return values_of(rank, numel, at::kFloat); },
        [n = comm_.size()](std::int64_t numel) { return fold_of_all(n, numel, at::kFloat) / n; });
  }

 private:
  static constexpr std::int64_t kFew = 24;
  using OfRank = std::function<at::Tensor(int rank, std::int64_t numel)>;
  using Wanted = std::function<at::Tensor(std::int64_t numel)>;

  // One average after another by the same averager.
  void examine_averages(const std::string& what, const OfRank& values, const Wanted& wanted) {
    examine<RecordingCommunicator>(what, [&](RecordingCommunicator& recorded) {
      recorded.set_network(Network::kSlow);
      InFlightCommunicator comm(recorded);
      GroupAverager averager(comm);
      for (const std::int64_t numel : {std::int64_t{60}, std::int64_t{1}, num_values_})
        average(averager, recorded, comm, values(comm.rank(), numel), wanted(numel));
    });
  }

  void average(Averager& averager, RecordingCommunicator& recorded, InFlightCommunicator& comm,
               at::Tensor values, const at::Tensor& wanted) {
    const std::int64_t held = read_memory().total_live_bytes;
    const auto num_bytes = static_cast<std::int64_t>(values.nbytes());
    const std::size_t num_calls = recorded.calls().size();
    const std::int64_t bytes = recorded.traffic().bytes_sent();
    averager.poll();  // nothing is in flight
    recorded.forget();

    averager.start(values);
    expect("the number of operations that start() has started", recorded.recording().num_started,
           1);
    expect("the number of operations that start() waits for, while training could go on,",
           recorded.recording().num_waited_for, 0);
    averager.poll();
    if (recorded.recording().num_tests == 0)
      fault("poll() calls no test() while the average is in flight, which MPI needs to move on");
    expect("the number of operations that poll() waits for, while training could go on,",
           recorded.recording().num_waited_for, 0);
    if (recorded.recording().num_started > 0 && comm.last_data() != values.const_data_ptr())
      fault("start() sends a copy: that takes the memory of `values` a second time");

    const int num_tests = recorded.recording().num_tests;
    const std::optional<int> num_workers = averager.finish();
    expect(
        "the number of calls of test() in finish(), where only wait() leaves the processor alone,",
        recorded.recording().num_tests - num_tests, 0);
    expect("the number of operations that finish() leaves in flight",
           recorded.recording().num_on_their_way(), 0);
    if (comm.is_touched()) fault("the values are written to while they are in flight");
    expect("the average of " + count_of(values.numel(), "value"), values, wanted);
    expect_count(num_workers, comm_.size());
    expect_calls(recorded, num_calls, values.numel());
    expect("the number of bytes that an average of " + count_of(values.numel(), "value") + " sends",
           recorded.traffic().bytes_sent() - bytes,
           all_reduce_traffic(values.numel(), 4, comm.size(), comm.rank()).bytes_sent());

    const auto storage = values.storage().getWeakStorageImpl();
    values.reset();
    if (!storage.expired()) {
      fault("the averager keeps the values after finish()");
    } else {
      expect("the number of bytes that an average leaves in memory",
             read_memory().total_live_bytes - held + num_bytes, std::int64_t{0});
    }
  }

  void expect_count(const std::optional<int>& found, int wanted) {
    if (!found) return fault("finish() returns nothing, as if the round had failed");
    expect("the number of workers that finish() returns", *found, wanted);
  }

  void expect_calls(const RecordingCommunicator& comm, std::size_t first, std::int64_t numel) {
    const std::string found = listed(std::span(comm.calls()).subspan(first));
    const std::string wanted = "all_reduce of " + count_of(numel, "element");
    if (found == wanted) return;
    fault(concat("an average of ", count_of(numel, "value"), " asks for ",
                 found.empty() ? "nothing" : found, "; wanted: ", wanted));
  }

  Draw draw_;
  std::int64_t num_values_ = draw_.number(1100, 1900);
};

std::vector<std::string> faults_of_averager(Communicator& comm) {
  AveragerChecks checks(comm);
  checks.averages();
  checks.averages_zeros();
  checks.averages_what_is_infinite();
  checks.adds_up_as_the_tree();
  checks.averages_over_many_workers();
  return checks.faults();
}

// From the fourth round on, a fragment has its next turn: what the last one left behind shows.
std::vector<std::string> faults_of_rounds(Communicator& comm) {
  DilocoChecks checks(comm);
  checks.trains({.name = "alpha 0", .alpha = 0, .num_rounds = 7});
  return checks.faults();
}

std::vector<std::string> faults_of_diloco(Communicator& comm) {
  DilocoChecks checks(comm);
  checks.trains({.name = "alpha 0.25"});
  checks.trains({.name = "alpha 1", .alpha = 1});
  checks.trains({.name = "rounds that fail", .num_rounds = 8, .failures = {1, 3, 4, 7}});
  checks.trains(
      {.name = "rounds that fail, alpha 1", .alpha = 1, .num_rounds = 3, .failures = {1, 3}});
  checks.trains({.name = "alpha 0, parameters NaN while the average is in flight",
                 .alpha = 0,
                 .num_rounds = 3,
                 .failures = {2},
                 .has_nan = true});
  checks.trains({.name = "started by finish_round()", .failures = {2}, .starts = false});
  checks.trains({.name = "checkpoints in between", .failures = {2}, .settles = true});
  checks.trains({.name = "resumed in the middle of a round", .settles = true, .resumes = true});
  const std::string in_two_types = "parameters in bf16, global ones in fp32";
  checks.trains({.name = in_two_types, .alpha = 0, .type = at::kBFloat16});
  checks.trains({.name = in_two_types + ", alpha 0.25", .num_rounds = 1, .type = at::kBFloat16});
  checks.trains({.name = "alpha 0, and worker 0 learns nothing", .alpha = 0, .rests = true});
  JudgedRun memory = {.name = "memory", .num_rounds = 3, .failures = {2}, .measures = true};
  checks.trains(memory);
  memory.name += ", " + in_two_types;
  memory.type = at::kBFloat16;
  checks.trains(memory);
  return checks.faults();
}

// The real trainer, whose averager with exact sums hands rounded values on to the answer's start().
std::vector<std::string> faults_of_trainings(Communicator& comm) {
  static const TempFolder folder;
  const CaseTexts texts(all_gather_text(folder.path().string(), comm)[0]);
  const Trainer trainer = step9::trainer();
  Examination examination(comm);
  for (const SumMode sums : {SumMode::kOrdered, SumMode::kExact}) {
    const std::string name = sums == SumMode::kExact ? "a training with exact sums" : "a training";
    examination.begin_faults_with(name + ": ");
    examination.examine_next(name, [&](Communicator&) {
      const Case one = {"", [sums](TrainOptions& options) {
                          options.num_steps = 8;
                          options.gradient_sum = sums;
                          options.data.num_microbatches = 2;
                          options.set<DilocoOptions>() = {.sync_every = 4, .num_fragments = 2};
                        }};
      const TrainOptions options = options_for(trainer, options_of(one, texts));
      const MemoryReading before = read_memory();
      const TrainReport report = trainer.train(options, comm);
      for (const std::string& line :
           differences_from_theory(trainer, options, report, before, comm.size(), comm.rank()))
        examination.fault(line);
      if (all_gather_text(report.param_hash, comm)[0] != report.param_hash)
        examination.fault("this rank's global parameters are not those of rank 0");
    });
  }
  return examination.faults();
}

}  // namespace
}  // namespace step9

std::vector<std::string> judge_linked(Communicator& comm) {
  install_memory_ledger();
  return faults_in_levels({{"the averager", [&] { return step9::faults_of_averager(comm); }},
                           {"rounds with alpha 0", [&] { return step9::faults_of_rounds(comm); }},
                           {"alpha, failed rounds, checkpoints", [&] {
                              const std::vector<std::string> faults = step9::faults_of_diloco(comm);
                              return faults.empty() ? step9::faults_of_trainings(comm) : faults;
                            }}});
}

}  // namespace ladder
