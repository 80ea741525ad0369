#include "tests/parity/climber.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <exception>
#include <nlohmann/json.hpp>

#include "common/comm/mesh.hpp"
#include "common/core/memory_ledger.hpp"
#include "common/testing/rank_test.hpp"
#include "common/train/differences.hpp"
#include "common/train/start.hpp"
#include "step0_single_gpu/judge/comparison.hpp"
#include "tests/parity/closed_form.hpp"

namespace ladder {

void expect_close(const FinishedRun& run, const FinishedRun& wanted, const Closeness& within) {
  ASSERT_EQ(run.report.losses.size(), wanted.report.losses.size());
  const auto expect_near = [](const std::vector<double>& found, const std::vector<double>& series,
                              double tolerance, const char* what) {
    for (std::size_t i = 0; i < found.size(); ++i)
      EXPECT_NEAR(found[i] / series[i], 1, tolerance) << what << " of step " << i + 1;
  };
  expect_near(run.report.losses, wanted.report.losses, within.loss, "loss");
  expect_near(run.report.grad_norms, wanted.report.grad_norms, within.grad_norm, "gradient norm");
  expect_near(run.report.param_norms, wanted.report.param_norms, within.param_norm, "norm");
}

Climber::Climber() : comm_(test_world().comm()), texts_(folder_) {
  install_memory_ledger();
  shared_folder_ = all_gather_text(folder_.path().string(), comm_)[0];
}

Climber::~Climber() {
  if (std::uncaught_exceptions() == 0) wait_for_all();
}

FinishedRun Climber::climb(const Trainer& rung, TrainOptions options) {
  return climb(rung, std::move(options), comm_);
}

FinishedRun Climber::climb(const Trainer& rung, TrainOptions options, Communicator& comm) {
  options = options_for(rung, options);
  start_apart(size(), rung, options);
  options.output.out = folder_for(rung.step);
  const MemoryReading before = read_memory();
  FinishedRun run = {rung.step, rung.train(options, comm), options.output.out};
  expect_theory(rung, options, run.report, before, comm.machines());
  share_hash(run);  // rank 0 has written its checkpoint
  return run;
}

FinishedRun Climber::climb_on(int num_ranks, const Trainer& rung, TrainOptions options) {
  options = options_for(rung, options);
  if (const std::int64_t all = options.data.step_microbatches) {  // finalize() deals to the world
    const std::int64_t num_parts =
        rung.mesh(options, num_ranks).num_replicas * batch_shape(options).flushes_per_step;
    options.data.num_microbatches = (all + num_parts - 1) / num_parts;
  }
  start_apart(num_ranks, rung, options);
  options.output.out = folder_for(rung.step);
  FinishedRun run = {rung.step, {}, options.output.out};
  const bool takes_part = rank() < num_ranks;
  std::unique_ptr<Communicator> group = comm_.split(takes_part ? 0 : -1, rank());
  if (takes_part) run.report = rung.train(options, *group);
  wait_for_all();
  return run;
}

FinishedRun Climber::ask_oracle(const TrainOptions& options, int num_ranks) {
  TrainOptions plain = options;
  plain.model.recompute = Recompute::kNone;
  return ladder::ask_oracle(plain, num_ranks,
                            concat(shared_folder_, "/oracle-", rank(), "-", num_answers_++));
}

FinishedRun Climber::expect_oracle(const FinishedRun& run, const TrainOptions& options,
                                   int num_ranks) {
  FinishedRun wanted = run;
  if (rank() == 0) {
    wanted = ask_oracle(options, num_ranks);
    EXPECT_THAT(differences(run, wanted), ::testing::IsEmpty());
  }
  wait_for_all();
  return wanted;
}

// Replicas with the same seed are equal even without a broadcast, so each replica gets its own seed
// here. The data keep the common seed, which finalize() has already passed on.
void Climber::start_apart(int num_ranks, const Trainer& rung, TrainOptions& options) const {
  if (!rung.starts_by_broadcast) return;
  options.seed += static_cast<std::uint64_t>(rung.mesh(options, num_ranks).replica_of(rank()));
}

std::string Climber::folder_for(const std::string& name) {
  return concat(shared_folder_, "/", num_runs_++, "-", name);
}

// If the model is spread over ranks, only rank 0 has a hash of it. Otherwise, all have the same one,
// and they always have the same losses and norms. Collective.
void Climber::share_hash(FinishedRun& run) {
  TrainReport& report = run.report;
  const std::string of_rank_0 = all_gather_text(report.param_hash, comm_)[0];
  if (report.param_hash.empty()) report.param_hash = of_rank_0;
  const std::string account =
      Json{report.losses, report.grad_norms, report.param_norms, report.param_hash}.dump();
  EXPECT_THAT(all_gather_text(account, comm_), ::testing::Each(account));
}

void Climber::expect_theory(const Trainer& rung, const TrainOptions& options,
                            const TrainReport& report, const MemoryReading& before,
                            const Machines& machines) const {
  SCOPED_TRACE(concat(rung.step, ": measured against theory"));
  if (!ranks_are_processes()) {  // but threads, of which none has a memory of its own
    EXPECT_EQ(report.traffic,
              traffic_theory(rung, options, steps_of(report), size(), rank(), machines));
    return;
  }
  expect_closed_form(options, report, comm_);
  EXPECT_THAT(differences_from_theory(rung, options, report, before, size(), rank(), machines),
              ::testing::IsEmpty());
}

}  // namespace ladder
