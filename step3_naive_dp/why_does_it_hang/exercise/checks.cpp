// Judges the six trainers. The ranks are threads, so those of a trainer that is still broken end
// without harm to the next one; --check-collectives finds what makes them wait. A mended trainer
// trains like step 3's loop, to the bit, and sends what the cost card says: so nothing is mended by
// leaving it out.
#include <algorithm>

#include "common/comm/checking/checking_communicator.hpp"
#include "common/comm/threads/run_as_threads.hpp"
#include "common/core/check.hpp"
#include "common/testing/judge_main.hpp"
#include "common/testing/temp_folder.hpp"
#include "common/testing/time_limit.hpp"
#include "step0_single_gpu/judge/cases.hpp"
#include "step3_naive_dp/naive_dp.hpp"
#include "step3_naive_dp/why_does_it_hang/train.hpp"
#include "step3_naive_dp/why_does_it_hang/trainers.hpp"

namespace ladder {
namespace hang {
namespace {

constexpr double kPatienceSeconds = 1;
constexpr int kMostRanks = 4;

TrainOptions small_options(int trainer, std::int64_t num_steps, const std::string& data) {
  TrainOptions options;
  options.num_steps = num_steps;
  options.model = {.context = 16, .layers = 1, .heads = 2, .channels = 16};
  options.data.source = options.data.validation_source = data;
  options.data.microbatch_size = 1;
  options.optimizer.kind = OptimizerKind::kSgd;
  options.lr = {.schedule = LrSchedule::kConstant, .lr = 0.1};
  options.output.is_quiet = true;
  options.set<HangOptions>().trainer = trainer;
  return options_for(hang::trainer(), options);
}

// Step 3's loop.
TrainReport train_plainly(const TrainOptions& options, World& world) {
  Communicator& comm = world.comm();
  Replica replica(options, comm);
  broadcast_parameters(replica.flat, comm);
  while (replica.next_step()) {
    const Microbatches batch = replica.next_batch();
    const double num_targets = all_reduce_sum(replica.count(batch), comm);
    const double loss = replica.accumulate(batch, num_targets);
    all_reduce_gradients(replica.grads, comm);
    const double norm = replica.update();
    replica.record(all_reduce_sum(StepSums{loss}, comm), norm, num_targets);
  }
  return replica.finish();
}

using Train = TrainReport (*)(const TrainOptions& options, World& world);

// The reports of all ranks. Throws what a rank throws.
std::vector<TrainReport> train_on(int num_ranks, const TrainOptions& options, Train train) {
  std::vector<TrainReport> reports(static_cast<std::size_t>(num_ranks));
  run_as_threads(num_ranks, [&](Communicator& comm) {
    World world(comm.split(0, comm.rank()), Transport::kThreads);
    check_collectives(world, kPatienceSeconds * time_scale(), [&] {
      reports[static_cast<std::size_t>(comm.rank())] = train(options, world);
      return 0;
    });
  });
  return reports;
}

std::int64_t steps_until_the_loss_rises(const std::vector<double>& losses) {
  const auto rise = std::adjacent_find(losses.begin(), losses.end(), std::less<>());
  return rise == losses.end() ? std::ssize(losses) : rise - losses.begin() + 2;
}

TrainReport wanted_report(int trainer, int num_ranks, std::int64_t num_steps,
                          const std::string& data) {
  const TrainReport report =
      train_on(num_ranks, small_options(trainer, num_steps, data), train_plainly).front();
  const std::int64_t num_wanted =
      trainer == 4 ? steps_until_the_loss_rises(report.losses) : num_steps;
  return num_wanted == num_steps ? report : wanted_report(trainer, num_ranks, num_wanted, data);
}

// What is wrong with it, or nothing.
std::string fault_of(int trainer, int num_ranks, const std::string& data) {
  constexpr std::int64_t kNumSteps = 12;
  const TrainReport wanted = wanted_report(trainer, num_ranks, kNumSteps, data);
  const TrainOptions options = small_options(trainer, kNumSteps, data);
  std::vector<TrainReport> reports;
  try {
    reports = train_on(num_ranks, options, train);
  } catch (const std::exception& error) {
    return error.what();
  }
  for (int rank = 0; rank < num_ranks; ++rank) {
    const TrainReport& report = reports[static_cast<std::size_t>(rank)];
    const auto num_steps = report.losses.size();
    if (num_steps != wanted.losses.size())
      return concat("it takes ", num_steps, " steps, not ", wanted.losses.size());
    if (report.losses != wanted.losses || report.param_hash != wanted.param_hash)
      return "its losses or parameters are not those of step 3";
    const Traffic traffic = every_step<step_traffic>(options, steps_of(report), num_ranks, rank);
    if (report.traffic == traffic) continue;
    for (int i = 0; i < kNumCommOps; ++i) {
      const auto op = static_cast<CommOp>(i);
      const OpTraffic found = report.traffic[op], theory = traffic[op];
      if (found == theory) continue;
      return concat("rank ", rank, " makes ", found.calls, " calls of ", to_string(op),
                    " that send ", found.bytes_sent, " bytes; what the trainer is for takes ",
                    theory.calls, " and ", theory.bytes_sent);
    }
  }
  return "";
}

}  // namespace
}  // namespace hang

std::vector<std::string> judge_linked(Communicator& /*comm*/) {
  const TempFolder folder;
  const CaseTexts texts(folder.path());
  for (int trainer = 1; trainer <= hang::kNumTrainers; ++trainer) {
    for (int num_ranks = 1; num_ranks <= hang::kMostRanks; ++num_ranks) {
      const std::string fault = hang::fault_of(trainer, num_ranks, texts.windows);
      if (fault.empty()) continue;
      const char* const ranks = num_ranks == 1 ? " rank" : " ranks";
      std::vector<std::string> faults = {
          concat("trainer ", trainer, " on ", num_ranks, ranks, ": ", fault)};
      if (trainer > 1) faults.push_back(concat("right before it: ", trainer - 1, " of six"));
      return faults;
    }
  }
  return {};
}

}  // namespace ladder
