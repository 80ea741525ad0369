// Step 9's own trainer with --elastic: three processes, real signals, real checkpoints.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>
#include <map>
#include <memory>
#include <thread>

#include "common/core/check.hpp"
#include "common/core/timer.hpp"
#include "common/testing/program.hpp"
#include "common/testing/temp_folder.hpp"
#include "common/train/disk.hpp"
#include "common/train/json.hpp"

namespace ladder {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr double kSeconds = 120;  // on a busy machine

class ElasticTrainer : public ::testing::Test {
 protected:
  ElasticTrainer() : lighthouse_(words(one_word(LADDER_LIGHTHOUSE) + " --port 0"), folder_.path()) {
    const std::string mark = ", port ";
    EXPECT_TRUE(lighthouse_.wait_for_output(mark));  // and the number, which it writes with it
    const std::string output = lighthouse_.output();
    port_ = std::stoi(output.substr(output.find(mark) + mark.size()));
  }

  std::vector<std::string> command(int worker, const std::string& options) const {
    return words(
        concat(one_word(LADDER_TRAINER), " --layers 1 --heads 2 --channels 16 --context 16 ",
               "--micro-batch-size 2 --steps 1200 --sync-every 12 --fragments 2 ",
               "--log-every 60 --elastic 127.0.0.1:", port_, " --workers 3 --worker ", worker,
               " --join-timeout 2 --round-timeout 2 --patience 30 --out ", worker, " ", options));
  }
  void start(int worker, const std::string& options = "") {
    workers_[worker] = std::make_unique<Program>(command(worker, options), folder_.path());
  }
  int wait(int worker) { return workers_.at(worker)->wait(kSeconds); }
  std::string output(int worker) const { return workers_.at(worker)->output(); }
  Json report(int worker) const {
    return parse_json(read_text_file(folder_.path(concat(worker, "/report.json"))), "report.json");
  }
  void expect_all_equal() const {
    for (const auto& [worker, program] : workers_)
      EXPECT_EQ(report(worker)["param_hash"], report(0)["param_hash"]) << program->output();
  }

  TempFolder folder_;
  Program lighthouse_;
  int port_ = 0;
  std::map<int, std::unique_ptr<Program>> workers_;
};

// The others go on, and the one that comes back has their model at the end.
TEST_F(ElasticTrainer, AWorkerThatIsKilledAndComesBackEndsWithTheOthersModel) {
  for (int worker = 0; worker < 3; ++worker) start(worker, "--save-every 60 --keep 1");
  ASSERT_TRUE(workers_[1]->wait_for_output("step 240/"));
  workers_[1]->signal(SIGKILL);
  EXPECT_EQ(wait(1), 128 + SIGKILL);
  ASSERT_TRUE(workers_[0]->wait_for_output("step 420/"));
  start(1, "--resume auto");
  for (int worker = 0; worker < 3; ++worker) EXPECT_EQ(wait(worker), 0) << output(worker);
  EXPECT_THAT(output(1),
              AllOf(HasSubstr("resumed after step "), HasSubstr("worker 1 has healed from")));
  EXPECT_THAT(output(0), HasSubstr("of 2 workers"));
  expect_all_equal();
  EXPECT_LT(report(0)["losses"].back(), 4.5);  // from 5.5
}

// A signal to one: it saves, leaves, and costs the others nothing.
TEST_F(ElasticTrainer, AWorkerThatIsStoppedLeaves) {
  for (int worker = 0; worker < 3; ++worker) start(worker);
  ASSERT_TRUE(workers_[2]->wait_for_output("step 240/"));
  workers_[2]->signal(SIGUSR1);
  EXPECT_EQ(wait(2), 75) << output(2);
  EXPECT_THAT(output(2), AllOf(HasSubstr("worker 2 has left"), HasSubstr("saved 2/checkpoints")));
  for (int worker = 0; worker < 2; ++worker) EXPECT_EQ(wait(worker), 0) << output(worker);
  EXPECT_EQ(report(0)["param_hash"], report(1)["param_hash"]);
}

// Alone, with nobody to average with: a signal ends the wait, and so does patience. Both save.
TEST_F(ElasticTrainer, AWorkerThatWaitsInVainSavesAndStops) {
  start(0, "--min-workers 2");
  ASSERT_TRUE(workers_[0]->wait_for_output("worker 0 joins"));
  std::this_thread::sleep_for(std::chrono::seconds(1));  // until it asks
  const Timer timer;
  workers_[0]->signal(SIGUSR1);
  EXPECT_EQ(wait(0), 75) << output(0);
  EXPECT_LT(timer.seconds(), 15);  // --patience is 30
  EXPECT_THAT(output(0), AllOf(HasSubstr("waits for no quorum any more: it is asked to stop"),
                               HasSubstr("saved 0/checkpoints"), HasSubstr("worker 0 has left")));
  start(1, "--min-workers 2 --patience 3");
  EXPECT_EQ(wait(1), 75) << output(1);
  EXPECT_THAT(output(1), AllOf(HasSubstr("gives up after 3 s without a quorum (--patience)"),
                               HasSubstr("saved 1/checkpoints"), HasSubstr("--resume auto")));
}

TEST_F(ElasticTrainer, AWorkerWithAnotherModelIsRefused) {
  start(0);
  ASSERT_TRUE(workers_[0]->wait_for_output("step 60/"));
  start(1, "--channels 32");
  EXPECT_EQ(wait(1), 1);
  EXPECT_THAT(output(1), AllOf(HasSubstr("error: "), HasSubstr("--channels 32")));
  EXPECT_EQ(wait(0), 0) << output(0);
}

TEST_F(ElasticTrainer, APublicLighthouseNeedsAKey) {
  const ProgramResult result =
      run_program(words(one_word(LADDER_LIGHTHOUSE) + " --port 0 --public"), folder_.path());
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_THAT(result.output, HasSubstr("--public needs --elastic-key"));
}

// What has no effect, or contradicts itself, is refused before anybody is asked.
TEST_F(ElasticTrainer, OptionsThatMakeNoSenseAreRefused) {
  const auto expect_refused = [&](const std::string& options, const char* message) {
    const ProgramResult result =
        run_program(words(concat(one_word(LADDER_TRAINER), " ", options)), folder_.path());
    EXPECT_EQ(result.exit_code, 2) << options;
    EXPECT_THAT(result.output, HasSubstr(message)) << options;
  };
  expect_refused("--worker 1", "--worker is for workers that meet at a lighthouse");
  expect_refused("--merge tokens", "--merge is for workers that meet at a lighthouse");
  expect_refused("--elastic here", "--elastic is 'here', it must be HOST:PORT");
  expect_refused("--elastic 127.0.0.1:1 --workers 2 --worker 2", "--worker is 2");
  expect_refused("--elastic 127.0.0.1:1 --wire int8", "--wire is for ranks of one run");
  expect_refused("--elastic 10.0.0.1:1", "--elastic-key");
  expect_refused("--elastic 127.0.0.1:1 --transport threads --ranks 2",
                 "start each worker by itself");
}

}  // namespace
}  // namespace ladder
