// For the judge, part 2: rounds of DiLoCo, compared with what the definition makes of them. Each
// rank is a worker.
#pragma once

#include <memory>
#include <set>
#include <string>
#include <utility>

#include "common/core/memory_ledger.hpp"
#include "common/testing/closeness.hpp"
#include "common/testing/examination.hpp"
#include "step9_diloco/diloco.hpp"
#include "step9_diloco/exercise/in_flight.hpp"
#include "step9_diloco/exercise/wanted_workers.hpp"

namespace ladder::step9 {

struct JudgedRun {
  std::string name;
  double alpha = 0.25;
  int num_rounds = 4;
  std::set<int> failures = {};       // rounds, counted from 1
  bool starts = true;                // or leaves it to finish_round()
  bool settles = false;              // saves a checkpoint while the average is in flight
  bool resumes = false;              // from that checkpoint, as a new process does
  bool measures = false;             // memory
  bool has_nan = false;              // in the parameters, while the average is in flight
  bool rests = false;                // worker 0 learns nothing
  at::ScalarType type = at::kFloat;  // of the worker's parameters
};

class DilocoChecks : public Examination {
 public:
  explicit DilocoChecks(Communicator& comm) : Examination(comm, "part 2", "diloco.cpp") {
    say_only_first();
  }

  void trains(const JudgedRun& run) {
    examine<LockstepCommunicator>(run.name, [&](LockstepCommunicator& comm) {
      Workers workers(comm, run);
      auto attempt = begin(run, workers);
      workers.model.params().fill_(-1);
      attempt->adopt_global();
      expect("after adopt_global() a parameter of this worker", workers.model.params(),
             workers.wanted.params(comm_.rank()));
      for (int round = 1; round <= run.num_rounds; ++round) play(round, run, attempt, workers);
    });
  }

 private:
  // This worker, as the attempt has it, and all of them, as they should be.
  struct Workers {
    Workers(LockstepCommunicator& comm, const JudgedRun& run)
        : model(global.layout(),
                global.params().to(run.type, /*non_blocking=*/false, /*copy=*/true)),
          averager(comm, run.failures),
          wanted(comm.size(), options_of(run), run.type, run.has_nan, run.rests) {}

    FlatModel global{WantedWorkers::model()}, model;
    RecordingAverager averager;
    WantedWorkers wanted;
  };

  static DilocoOptions options_of(const JudgedRun& run) {
    return {.sync_every = 2 * WantedWorkers::kNumFragments,
            .num_fragments = WantedWorkers::kNumFragments,
            .sync_delay = 1,
            .alpha = run.alpha,
            .outer_lr = 0.5,
            .outer_momentum = 0.5};
  }

  static std::unique_ptr<Diloco> begin(const JudgedRun& run, Workers& workers) {
    return std::make_unique<Diloco>(workers.model, workers.global, options_of(run),
                                    workers.averager);
  }

  void play(int round, const JudgedRun& run, std::unique_ptr<Diloco>& attempt, Workers& workers) {
    const bool is_agreed = !run.failures.contains(round);
    const std::int64_t fragment = workers.wanted.fragment();
    prefix_ = concat("part 2, ", run.name, ", round ", round, " (fragment ", fragment, "): ");
    workers.averager.begin_round(round);
    learn(workers);
    workers.wanted.start();
    const std::int64_t held = bytes_held(), gradients = gradient_bytes();
    if (run.starts) {
      reset_memory_peaks();
      attempt->start_average();
      expect_started(workers);
      if (run.measures) expect_memory(workers, bytes_held() - held, gradient_bytes() - gradients);
    }
    learn(workers);
    if (!run.starts) workers.wanted.start();
    if (run.settles) settle(*attempt, is_agreed, workers);
    if (run.resumes) resume(run, attempt, workers);

    const bool found = attempt->finish_round();
    if (run.measures)
      expect("the number of bytes that finish_round() leaves behind", bytes_held() - held,
             std::int64_t{0});
    workers.wanted.finish(is_agreed);
    expect_finished(workers);
    expect("what finish_round() returns", std::string(found ? "true" : "false"),
           std::string(is_agreed ? "true" : "false"));
    expect_parameters(*attempt, workers);
    if (run.alpha == 0 || run.alpha == 1) expect_same_bits(run, fragment, workers);
    expect("the number of outer steps taken", attempt->round().outer_steps,
           workers.wanted.outer_steps());
    if (attempt->is_started() || attempt->round().pseudogradient.defined())
      fault(
          "the pseudogradient is kept after finish_round(): the next round would take it for its "
          "own");
  }

  void learn(Workers& workers) {
    workers.wanted.learn();
    workers.wanted.learn(workers.model.params(), comm_.rank());
  }

  // A checkpoint is saved: somebody else waits for the average.
  void settle(Diloco& attempt, bool is_agreed, Workers& workers) {
    attempt.settle();
    const at::Tensor saved = attempt.round().pseudogradient;
    if (is_agreed) expect("the average that a checkpoint saves", saved, workers.wanted.average());
    if (!is_agreed && saved.defined()) fault("a checkpoint saves an average that has failed");
  }
  void resume(const JudgedRun& run, std::unique_ptr<Diloco>& attempt, Workers& workers) {
    const std::unique_ptr<Diloco> saved = std::exchange(attempt, begin(run, workers));
    attempt->velocity().copy_(saved->velocity());
    attempt->restore(saved->round());
    attempt->adopt_global();  // has no effect now
    expect("the number of outer steps after restore()", attempt->round().outer_steps,
           workers.wanted.outer_steps());
  }

  void expect_started(const Workers& workers) {
    const auto& counts = workers.averager.counts();
    expect("the number of averages that start_average() starts", counts.num_started, 1);
    expect("the number of averages that start_average() waits for", counts.num_finished, 0);
    expect_sent(workers);
    expect("after start_average() a parameter of this worker", workers.model.params(),
           workers.wanted.params(comm_.rank()));
  }
  void expect_finished(const Workers& workers) {
    const auto& counts = workers.averager.counts();
    expect("the number of averages that are started until the end of the round", counts.num_started,
           1);
    expect("the number of averages that are waited for until the end of the round",
           counts.num_finished, 1);
    expect_sent(workers);
    if (counts.is_touched) fault("the pseudogradient is written to while it is in flight");
  }
  void expect_sent(const Workers& workers) {
    expect("the pseudogradient, global - local,", workers.averager.counts().sent,
           workers.wanted.pseudogradient(comm_.rank()));
  }

  // Global parameters first, and the momentum that they depend on: the local ones are made from
  // them.
  void expect_parameters(const Diloco& attempt, const Workers& workers) {
    const WantedWorkers& wanted = workers.wanted;
    for (std::int64_t f = 0; f < WantedWorkers::kNumFragments; ++f) {
      const auto expect_part = [&](const char* what, const at::Tensor& found,
                                   const at::Tensor& right) {
        expect(concat("fragment ", f, " of ", what), WantedWorkers::part(found, f),
               WantedWorkers::part(right, f));
      };
      expect_part("the outer momentum", attempt.velocity(), wanted.velocity());
      expect_part("the global parameters", workers.global.params(), wanted.global());
      expect_part("this worker's parameters", workers.model.params(), wanted.params(comm_.rank()));
    }
  }
  void expect_same_bits(const JudgedRun& run, std::int64_t fragment, const Workers& workers) {
    const at::Tensor found = WantedWorkers::part(workers.model.params(), fragment);
    const at::Tensor& all =
        run.alpha == 0 ? workers.global.params() : workers.wanted.params(comm_.rank());
    const auto same = bits_equal(found, WantedWorkers::part(all, fragment).to(run.type));
    if (!same)
      fault(concat(run.alpha == 0 ? "alpha 0 copies the global parameters"
                                  : "alpha 1 leaves the parameters of the worker alone",
                   ", to the bit, but: ", same.message()));
  }

  void expect_memory(const Workers& workers, std::int64_t held, std::int64_t gradients) {
    const auto bytes =
        static_cast<std::int64_t>(workers.wanted.pseudogradient(comm_.rank()).nbytes());
    expect("the number of bytes that start_average() leaves in memory", held, bytes);
    expect("the number of these bytes that are counted as gradients", gradients, bytes);
    const MemoryReading memory = read_memory();
    expect("the most bytes of gradients while start_average() runs",
           memory.peak(MemoryCategory::kGradients) - memory.live(MemoryCategory::kGradients) +
               gradients,
           bytes);
  }
  static std::int64_t gradient_bytes() { return read_memory().live(MemoryCategory::kGradients); }
  // All but what the judge itself has in flight.
  static std::int64_t bytes_held() {
    const MemoryReading memory = read_memory();
    return memory.total_live_bytes - memory.live(MemoryCategory::kCommunication);
  }
};

}  // namespace ladder::step9
