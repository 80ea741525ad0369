// The trainer of workers that may die: three processes, real signals, real checkpoints.
#include <csignal>
#include <map>
#include <memory>
#include <optional>
#include <thread>

#include "common/core/timer.hpp"
#include "common/testing/process_test.hpp"
#include "common/train/checkpoint/checkpoint.hpp"

namespace ladder {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr double kSeconds = 120;  // on a busy machine
const std::string kModel = " --layers 1 --heads 2 --channels 16 --context 16 ";

class ElasticTrainer : public ProcessTest {
 protected:
  ElasticTrainer() { start_lighthouse(); }
  void start_lighthouse(const std::string& rules = "--join-timeout 2") {
    lighthouse_.emplace(words(concat(one_word(LADDER_LIGHTHOUSE), " --port 0 ", rules)),
                        folder_.path());
    const std::string mark = ", port ";
    EXPECT_TRUE(lighthouse_->wait_for_output(mark));  // and the number, which it writes with it
    const std::string output = lighthouse_->output();
    port_ = std::stoi(output.substr(output.find(mark) + mark.size()));
  }

  std::vector<std::string> command(int worker, const std::string& options) const {
    return words(concat(one_word(LADDER_TRAINER), kModel,
                        "--micro-batch-size 2 --steps 1200 --sync-every 12 --fragments 2 ",
                        "--log-every 60 --elastic 127.0.0.1:", port_, " --workers 3 --worker ",
                        worker, " --round-timeout 2 --patience 30 --out ", worker, " ", options));
  }
  void start(int worker, const std::string& options = "") {
    workers_[worker] = std::make_unique<Program>(command(worker, options), folder_.path());
  }
  int wait(int worker) { return workers_.at(worker)->wait(kSeconds); }
  std::string output(int worker) const { return workers_.at(worker)->output(); }
  Json report(int worker) const { return report_of(std::to_string(worker)); }
  void expect_all_equal() const {
    for (const auto& [worker, program] : workers_)
      EXPECT_EQ(report(worker)["param_hash"], report(0)["param_hash"]) << program->output();
  }

  std::optional<Program> lighthouse_;
  int port_ = 0;
  std::map<int, std::unique_ptr<Program>> workers_;
};

// The other workers go on, and the one that comes back has their model at the end.
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
  const std::string saved = newest_checkpoint(folder_.path("2")).value() / "state.json";
  const Json counts = parse_json(read_text_file(saved), saved)["extra"]["counts"];
  EXPECT_GT(counts["run"], 0);
  EXPECT_GT(counts["quorum"], 0);
  EXPECT_GT(counts["lighthouse_epoch"], 0);
  for (int worker = 0; worker < 2; ++worker) EXPECT_EQ(wait(worker), 0) << output(worker);
  EXPECT_EQ(report(0)["param_hash"], report(1)["param_hash"]);
}

// The stop is in the middle of the only round that there is, with nothing in flight or with all of
// it. What follows a resume is what would have followed without the signal, to the bit.
TEST_F(ElasticTrainer, AStopInTheMiddleOfARoundLosesNothing) {
  for (const int delay : {0, 599}) {
    const std::string alone =
        concat(" --workers 1 --steps 600 --sync-every 600 --fragments 1 --sync-delay ", delay);
    start(0, concat(alone, " --out stopped", delay));
    ASSERT_TRUE(workers_[0]->wait_for_output("step 60/"));
    workers_[0]->signal(SIGTERM);
    EXPECT_EQ(wait(0), 75) << output(0);
    const std::string mark = "stopped on a signal after step ", text = output(0);
    ASSERT_THAT(text, HasSubstr(mark));
    const int step = std::stoi(text.substr(text.find(mark) + mark.size()));
    EXPECT_LT(step, 600);
    start(0, concat(alone, " --resume auto --out stopped", delay));
    EXPECT_EQ(wait(0), 0) << output(0);
    EXPECT_THAT(output(0), HasSubstr(concat("resumed after step ", step, " ")));
    start(0, concat(alone, " --out whole", delay));
    EXPECT_EQ(wait(0), 0) << output(0);
    const Json resumed = report_of(concat("stopped", delay)),
               whole = report_of(concat("whole", delay));
    EXPECT_EQ(resumed["param_hash"], whole["param_hash"]) << delay;
    EXPECT_EQ(resumed["losses"].back(), whole["losses"].back()) << delay;
  }
}

// Alone, with nobody to average with: a signal ends the wait.
TEST_F(ElasticTrainer, AWorkerThatWaitsInVainSavesAndStopsOnASignal) {
  start_lighthouse("--join-timeout 2 --min-workers 2");
  start(0);
  ASSERT_TRUE(workers_[0]->wait_for_output("worker 0 joins"));
  std::this_thread::sleep_for(std::chrono::seconds(1));  // until it asks
  const Timer timer;
  workers_[0]->signal(SIGUSR1);
  EXPECT_EQ(wait(0), 75) << output(0);
  EXPECT_LT(timer.seconds(), 15);  // --patience is 30
  EXPECT_THAT(output(0), AllOf(HasSubstr("waits no longer: it is asked to stop"),
                               HasSubstr("saved 0/checkpoints"), HasSubstr("worker 0 has left")));
}

// What it has learned in a round that nobody took with it is saved, and goes on after a resume: its
// own parameters are not the global ones.
TEST_F(ElasticTrainer, AWorkerThatGivesUpKeepsWhatItHasLearned) {
  for (const char* const delay : {"0", "3"}) {
    const std::string out = concat("delay", delay);
    start_lighthouse("--join-timeout 2 --min-workers 2");
    const std::string options = concat("--fragments 1 --patience 3 --sync-delay ", delay);
    start(0, concat(options, " --out ", out));
    EXPECT_EQ(wait(0), 75) << output(0);
    EXPECT_THAT(output(0), AllOf(HasSubstr("gives up after 3 s without a quorum (--patience)"),
                                 HasSubstr("--resume auto")));
    const std::filesystem::path saved = newest_checkpoint(folder_.path(out)).value();
    EXPECT_TRUE(read_text_file(saved / "model.safetensors") !=
                read_text_file(saved / "workers/0/model.safetensors"))
        << "it has lost its round: " << output(0);
    // Ten rounds of both. Without a delay, worker 0 has taken all steps of another one, in vain.
    const std::string steps = saved.filename() == "step_000012" ? "132" : "120";
    start(0, concat(options, " --patience 30 --resume auto --steps ", steps, " --out ", out));
    start(1, concat(options, " --patience 30 --steps 120 --out other", delay));
    for (int worker = 0; worker < 2; ++worker) EXPECT_EQ(wait(worker), 0) << output(worker);
    EXPECT_EQ(report_of(out)["param_hash"], report_of(concat("other", delay))["param_hash"]);
  }
}

// One document is empty: a batch of it alone has nothing to predict, and adds nothing.
TEST_F(ElasticTrainer, ABatchWithoutTargetsAddsNothing) {
  folder_.write("empty.jsonl", "{\"answer\": \"\"}\n{\"answer\": \"abc\"}\n");
  const std::string data = " --data empty.jsonl --rows documents --micro-batch-size 1 --steps 12 ";
  start(0, data + "--workers 1");
  EXPECT_EQ(wait(0), 0) << output(0);
  int num_without_loss = 0;
  const Json losses = report(0)["losses"];
  for (const Json& loss : losses) num_without_loss += loss.get<double>() == 0;
  EXPECT_EQ(num_without_loss, 6);
}

// Each is told which option, and both values; and the other one is not disturbed, also not by one
// that takes its number.
TEST_F(ElasticTrainer, AWorkerThatDoesNotFitIsRefused) {
  folder_.write("other.txt", std::string(5000, 'x'));
  start(0, "--steps 1200000");
  ASSERT_TRUE(workers_[0]->wait_for_output("step 60/"));
  int num_refused = 0;
  for (const auto& [options, message] : std::map<std::string, std::string>{
           {"--channels 32", "its --channels is 32, that of the others is 16"},
           {"--lr 0.5", "its --lr is 0.5, that of the others is 0.001"},
           {"--seed 7", "its --seed is 7, that of the others is 1"},
           {"--data other.txt", "its --data, as a hash of its contents, is "},
           {"--worker 0", "another process is worker 0"}}) {
    start(1, concat(options, " --out refused", ++num_refused));
    EXPECT_EQ(wait(1), 1);
    EXPECT_THAT(output(1), AllOf(HasSubstr("error: "), HasSubstr(message)));
  }
  run(concat(one_word(LADDER_LIGHTHOUSE), " --ask 127.0.0.1:", port_), 0, {"     0  "});
  workers_[0]->signal(SIGTERM);
  EXPECT_EQ(wait(0), 75) << output(0);
}

// Worker 1's folder was empty, and it was first. Nothing of what worker 0 has is undone.
TEST_F(ElasticTrainer, AWorkerOfAnotherRunIsRefusedAndKeepsWhatItHas) {
  const std::string save = "--steps 120 --save-every 60";
  start(0, save);
  EXPECT_EQ(wait(0), 0) << output(0);
  start(1, "--steps 12000");
  ASSERT_TRUE(workers_[1]->wait_for_output("step 60/"));
  start(0, "--steps 240 --resume auto");
  EXPECT_EQ(wait(0), 1) << output(0);
  EXPECT_THAT(output(0), AllOf(HasSubstr("its state belongs to run "), HasSubstr("train run ")));
  workers_[1]->signal(SIGKILL);
  wait(1);
  start_lighthouse();  // knows nothing: who has a state founds the group anew
  start(0, "--steps 240 --resume auto");
  start(1, "--steps 240 --out empty");
  for (int worker = 0; worker < 2; ++worker) EXPECT_EQ(wait(worker), 0) << output(worker);
  EXPECT_THAT(output(1), HasSubstr("worker 1 has healed from worker 0"));
  EXPECT_EQ(report(0)["param_hash"], report_of("empty")["param_hash"]);
}

TEST_F(ElasticTrainer, APublicLighthouseNeedsAKeyAndAWorkerAWorldOfItsOwn) {
  const std::string lighthouse = one_word(LADDER_LIGHTHOUSE), trainer = one_word(LADDER_TRAINER);
  for (const auto& [command, message] : std::map<std::string, const char*>{
           {lighthouse + " --port 0 --public", "--public needs --elastic-key"},
           {lighthouse + " --port 65536", "--port"},
           {trainer + " --transport threads --ranks 2", "start each worker by itself"}})
    run(command, 2, {message});
}

}  // namespace
}  // namespace ladder
