// run_main() with ranks that are threads, and trainers that do one thing each.
#include "common/train/run_main.hpp"
#include "common/comm/paced_communicator.hpp"

#include <ATen/Parallel.h>
#include <ATen/ops/ones.h>
#include <c10/util/Exception.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "common/comm/traffic_theory.hpp"
#include "common/core/check.hpp"
#include "common/core/cuda_device.hpp"
#include "common/core/memory_ledger.hpp"
#include "common/model/modules.hpp"
#include "common/testing/parse_options.hpp"
#include "common/testing/temp_folder.hpp"
#include "common/train/checkpoint/disk.hpp"
#include "common/train/command_line.hpp"
#include "common/train/dry_run.hpp"
#include "common/train/run.hpp"
#include "common/train/sends.hpp"
#include "common/train/start.hpp"

namespace ladder {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::StartsWith;

using Train = TrainReport (*)(const TrainOptions& options, Communicator& comm);

Trainer trainer_of(Train train) {
  return {{.step = "step_x",
           .state_bytes = [](const TrainOptions&, int,
                             int rank) { return StateBytes{.parameters = 100 + rank}; },
           .sends = [](const TrainOptions&, const StepsTaken&, int,
                       int) { return std::vector<Send>(); }},
          train};
}

TEST(DryRunJson, ListsARankForEachStageOfAReplica) {
  Trainer trainer = trainer_of(nullptr);
  EXPECT_EQ(dry_run_json(trainer.options, trainer, 6)["ranks"].size(), 1u);
  trainer.mesh = [](const TrainOptions&, int world_size) {
    return mesh_shape(world_size, world_size / 2);
  };
  const Json json = dry_run_json(trainer.options, trainer, 6);
  EXPECT_EQ(json["stages"], 3);
  EXPECT_EQ(json["ranks"].size(), 3u);
  EXPECT_EQ(json["ranks"][2]["rank"], 4);  // two replicas of stages 0 and 1 come before
  EXPECT_EQ(json["ranks"][2]["holds"]["parameters"], 104);
  EXPECT_EQ(json["ranks"][2]["at_most"]["parameters"], 104);
  EXPECT_THAT(describe_run(trainer.options, trainer, 6),
              HasSubstr("\nranks 2, 3 compute  stage 1, and sum its gradients\n"));
  EXPECT_THAT(describe_run(trainer.options, trainer, 2), Not(HasSubstr("sum its gradients")));
}

// A sum over groups of ranks: each send has its own. Of three microbatches of 4 rows, the last one has 1.
TEST(Sends, AddUpToTheTrafficOfARank) {
  SendPlan plan({.last = 2, .batches = {.microbatches = 3, .rows = 9}}, {.size = 6});
  plan.sum_of_doubles(StepPhase::kStart, 1);
  plan.sum_of_doubles(StepPhase::kEnd, 3, {.first = 1, .stride = 2, .size = 3});
  plan.each_microbatch({.operation = CommOp::kSend, .numel = 40, .element_bytes = 2}, 4);
  plan.each_microbatch({.operation = CommOp::kRecv});
  Traffic wanted = all_reduce_traffic(1, 8, 6, 5);
  wanted += all_reduce_traffic(3, 8, 3, 2);
  wanted *= 2;
  wanted[CommOp::kSend] = {.calls = 3, .bytes_sent = 9 * 10 * 2, .messages = 3};
  wanted[CommOp::kRecv].calls = 3;
  EXPECT_EQ(traffic_of(plan.sends(), /*rank=*/5), wanted);
}

class RunMain : public ::testing::Test {
 protected:
  // The first product makes locks of oneDNN that all threads share. The thread sanitizer, which cannot
  // see how a second thread learns of them, takes that for a race.
  static void SetUpTestSuite() { project(at::ones({2, 2}), at::ones({2, 2})); }

  // Runs on three threads, or with other options.
  int run(Train train, std::vector<std::string> options = {"--ranks", "3"}) {
    options.insert(options.begin(), {"step_x", "--transport", "threads", "--out", out_});
    std::vector<char*> arguments;
    for (std::string& option : options) arguments.push_back(option.data());
    ::testing::internal::CaptureStderr();
    ::testing::internal::CaptureStdout();
    const int code =
        run_main(static_cast<int>(arguments.size()), arguments.data(), trainer_of(train));
    ::testing::internal::GetCapturedStdout();
    errors_ = ::testing::internal::GetCapturedStderr();
    return code;
  }
  Json report() const { return parse_json(read_text_file(out_ + "/report.json"), "report.json"); }

  TempFolder folder_;
  const std::string out_ = folder_.path("run");
  std::string errors_;
};

// Each rank's part of the report is in its place, and no memory, which no thread has for itself.
TEST_F(RunMain, ReportsEachRankInItsPlace) {
  const auto train = [](const TrainOptions& options, Communicator& comm) {
    EXPECT_EQ(at::get_num_threads(), 2);
    ladder::Run run(options, comm);
    TrainReport report = run.report();
    report.data_bytes_read = 10 + comm.rank();
    report.losses = {0.5};
    report.traffic[CommOp::kSend].calls = comm.rank();
    comm.barrier();
    return report;
  };
  EXPECT_EQ(run(train, {"--ranks", "3", "--threads", "2"}), kExitDone);
  EXPECT_TRUE(memory_ledger_is_installed());
  const Json json = report();
  EXPECT_EQ(json["world_size"], 3);
  EXPECT_EQ(json["config"]["transport"], "threads");
  EXPECT_EQ(json["transport"], "threads");
  EXPECT_EQ(json["config"]["ranks"], 3);
  EXPECT_THAT(json["data_bytes_read"], ElementsAre(10, 11, 12));
  EXPECT_THAT(json["memory"], ElementsAre(nullptr, nullptr, nullptr));
  for (int rank = 0; rank < 3; ++rank) {
    EXPECT_EQ(json["memory_theory"][rank]["parameters"], 100 + rank);
    EXPECT_EQ(json["traffic"][rank]["send"]["calls"], rank);
  }
  EXPECT_THAT(json["differences"][0], ElementsAre());  // theory says that nothing is sent
  EXPECT_THAT(json["differences"][2], ElementsAre("calls of send in 1 step: 2, not 0"));
  EXPECT_EQ(errors_, "");
}

TEST_F(RunMain, LogsNoMemory) {
  const auto train = [](const TrainOptions& options, Communicator& comm) {
    ladder::Run run(options, comm);
    run.next_step();
    run.end_step({.loss = 1, .grad_norm = 1, .param_norm = 1, .denominator = 1});
    return run.report();
  };
  EXPECT_EQ(run(train), kExitDone);
  const Json line = parse_json(read_text_file(out_ + "/metrics.jsonl"), "metrics.jsonl");
  EXPECT_EQ(line["loss"], 1.0);
  EXPECT_GT(line["time"], 1.7e9);  // since 2023
  EXPECT_TRUE(line["live_bytes"].is_null());
}

// The other ranks wait for the one that has failed, or for one another.
template <class Error>
TrainReport fail_on_rank_2(const TrainOptions& /*options*/, Communicator& comm,
                           const Error& error) {
  if (comm.rank() == 2) throw error;
  comm.barrier();
  ADD_FAILURE() << "rank " << comm.rank() << " was not woken with an error";
  return {};
}

TEST_F(RunMain, AnErrorOnOneRankEndsAllAndIsSaidOnce) {
  const auto check_error = [](const TrainOptions& options, Communicator& comm) {
    return fail_on_rank_2(options, comm, CheckError("no more disk"));
  };
  EXPECT_EQ(run(check_error), kExitError);
  EXPECT_EQ(errors_, "error: rank 2: no more disk\n");
  const auto usage_error = [](const TrainOptions& options, Communicator& comm) {
    return fail_on_rank_2(options, comm, UsageError("--lr is 7"));
  };
  EXPECT_EQ(run(usage_error), kExitUsage);
  EXPECT_EQ(errors_, "error: rank 2: --lr is 7\n");
  const auto libtorchs_error = [](const TrainOptions& options, Communicator& comm) {
    return fail_on_rank_2(options, comm, c10::Error({"", "", 0}, "shapes differ"));
  };
  EXPECT_EQ(run(libtorchs_error), kExitError);
  EXPECT_EQ(errors_, "error: rank 2: shapes differ\n") << "without a stack trace";
  EXPECT_NO_THROW(FolderLock(out_, out_)) << "the run's folder is free again";
}

// Of all errors one is shown: that of the first rank. The others may fail because of it.
TEST_F(RunMain, AnErrorOfAllRanksIsSaidOnce) {
  const auto train = [](const TrainOptions&, Communicator& comm) -> TrainReport {
    throw CheckError(concat("no data on ", comm.size(), " ranks"));
  };
  EXPECT_EQ(run(train), kExitError);
  EXPECT_THAT(errors_, AllOf(StartsWith("error: rank "), HasSubstr("no data on 3 ranks")));
  EXPECT_EQ(std::count(errors_.begin(), errors_.end(), '\n'), 1) << errors_;
}

// A signal is for the process; the ranks agree on the step at which they stop.
TEST_F(RunMain, ASignalStopsAllRanks) {
  const auto train = [](const TrainOptions& options, Communicator& comm) {
    ladder::Run run(options, comm);
    StopSignal::begin_training();
    if (comm.rank() == 2) std::raise(SIGUSR1);
    const double requests = all_reduce_sum(run.stop_requested() ? 1.0 : 0.0, comm);
    TrainReport report = run.report();
    report.was_stopped = requests > 0;
    return report;
  };
  EXPECT_EQ(run(train), kExitStopped);
  EXPECT_TRUE(report()["was_stopped"].get<bool>());
}

TEST_F(RunMain, ALinkSlowsThreadsDown) {
  const auto train = [](const TrainOptions&, Communicator& comm) {
    EXPECT_NE(find_communicator<PacedCommunicator>(comm), nullptr);
    EXPECT_EQ(all_reduce_sum(1.0, comm), 3);
    return TrainReport();
  };
  EXPECT_EQ(run(train, {"--ranks", "3", "--link", "1:100"}), kExitDone) << errors_;
}

TEST_F(RunMain, WantsToKnowHowManyThreads) {
  const auto never = [](const TrainOptions&, Communicator&) -> TrainReport {
    throw CheckError("must not train");
  };
  EXPECT_EQ(run(never, {}), kExitUsage);
  EXPECT_EQ(errors_,
            "error: --transport threads starts the ranks itself: give their number with --ranks "
            "N\n");
  EXPECT_FALSE(std::filesystem::exists(out_));
}

// Nothing is written, and what to do instead is said.
TEST_F(RunMain, SaysWhyThereIsNoGpu) {
  if (cuda_problem().empty()) return;  // there is one
  const int code = run([](const TrainOptions&, Communicator&) { return TrainReport(); },
                       {"--transport", "auto", "--device", "cuda"});
  EXPECT_EQ(code, kExitUsage);
  EXPECT_THAT(errors_, AllOf(HasSubstr("--device cuda: " + cuda_problem()), HasSubstr("the CPU")));
  EXPECT_FALSE(std::filesystem::exists(out_));
}

// On a thousand ranks, what all of them have in common is one line.
TEST(DryRun, RanksThatHoldOrSendTheSameShareALine) {
  TrainOptions options{.step = "step_x"};
  finalize(options);
  const auto describe = [&](auto bytes_of, int world_size) {
    Trainer trainer = trainer_of(nullptr);
    trainer.state_bytes = bytes_of;
    return describe_run(options, trainer, world_size);
  };
  const auto last_differs = [](const TrainOptions&, int size, int rank) {
    return StateBytes{.parameters = rank == size - 1 ? 7 : 8};
  };
  EXPECT_THAT(describe(last_differs, 1000),
              AllOf(HasSubstr("\nranks 0 to 998 hold  8 bytes"), HasSubstr("\nrank 999 holds  "),
                    HasSubstr("\nranks 0 to 999 send  0 bytes")));
  EXPECT_THAT(describe(last_differs, 3), HasSubstr("\nranks 0, 1 hold     8 bytes"));
  EXPECT_THAT(describe(last_differs, 1), HasSubstr("\nrank 0 holds        7 bytes"));
  const auto two_stages = [](const TrainOptions&, int, int rank) {
    return StateBytes{.parameters = rank % 2};
  };
  EXPECT_THAT(describe(two_stages, 6), AllOf(HasSubstr("\nranks 0, 2, 4 hold  0 bytes"),
                                             HasSubstr("\nranks 1, 3, 5 hold  1 bytes")));
  const std::string many = describe(two_stages, 1000);
  EXPECT_THAT(many, HasSubstr("\nranks 0, 2, 4 … 998 (500 in all) hold  0 bytes"));
  EXPECT_LT(std::count(many.begin(), many.end(), '\n'), 12) << many;
}

// A sample may become several rows.
TEST(DescribeRun, CountsTheRowsOfEachSample) {
  TrainOptions options = {.step = "step_x"};
  options.data.num_microbatches = 4;
  finalize(options);
  EXPECT_THAT(
      describe_run(options, trainer_of(nullptr), 1),
      AllOf(HasSubstr(" 2048 (16 rows of 128: 4 per microbatch, 4 microbatches, 1 replica)"),
            HasSubstr("forward keeps 17899520 bytes")));
  options.set<GivenShape>() = {{.rows_per_sample = 2}};
  EXPECT_THAT(
      describe_run(options, trainer_of(nullptr), 1),
      AllOf(HasSubstr(" 4096 (32 rows of 128, two per sample: 8 per microbatch, 4 microbatches"),
            HasSubstr("forward keeps 35799040 bytes")));
  EXPECT_THAT(describe_start(options, trainer_of(nullptr), 3, 2),
              AllOf(HasSubstr(" 12288 (96 rows "), HasSubstr("rank 2 will hold    102 B")));
}

}  // namespace
}  // namespace ladder
