// Step 0 as a user sees it: a process with options, exit codes, signals and files. Nothing is
// simulated: the program and the kills are real.
#include <chrono>
#include <csignal>
#include <fstream>
#include <iterator>
#include <regex>
#include <set>
#include <sstream>
#include <thread>

#include "common/core/seed.hpp"
#include "common/testing/process_test.hpp"

namespace ladder {
namespace {

namespace fs = std::filesystem;
using ::testing::EndsWith;
using ::testing::HasSubstr;

// A run that takes a few milliseconds per step and ends in the middle of its second epoch. With
// 20 channels, tensors need padding.
const std::string kOptions =
    "--layers 1 --heads 2 --channels 20 --context 16 --micro-batch-size 4 --num-microbatches 2 "
    "--lr 1e-2 --log-every 1 ";

// Of this object and of those in it, unless their keys are the run's own names.
std::set<std::string> keys_in(const Json& json) {
  std::set<std::string> keys;
  if (!json.is_structured()) return keys;
  for (const auto& [key, value] : json.items()) {
    if (json.is_object()) keys.insert(key);
    if (key != "config" && key != "other_by_name") keys.merge(keys_in(value));
  }
  return keys;
}

// The first cells of docs/report.md, but for rows that say that only some runs write them.
std::set<std::string> keys_of_every_run(const std::string& page) {
  std::set<std::string> keys;
  std::istringstream lines(page);
  for (std::string line; std::getline(lines, line);) {
    const std::size_t end = line.find(" | ");
    if (!line.starts_with("| `") || line.substr(end).starts_with(" | only ")) continue;
    const std::regex key("`(\\w+)`");
    for (std::sregex_iterator i(line.begin(), line.begin() + end, key), none; i != none; ++i)
      keys.insert((*i)[1]);
  }
  return keys;
}

class Step0Process : public ProcessTest {
 protected:
  // The data are by default a small text, named by a path with a space.
  std::string training(const std::string& options) const {
    return concat(trainer("step0_single_gpu"), kOptions, "--data ", one_word(data_), " ", options);
  }
  void train(const std::string& options, int exit_code = 0,
             const std::vector<std::string>& says = {}) const {
    run(training(options), exit_code, says);
  }
  // The run is in this folder, and goes on if it has begun.
  static std::string with_out(const std::string& options, const std::string& out) {
    return concat(options, " --resume auto --out ", out);
  }
  std::int64_t num_logged() const {
    std::ifstream metrics(folder_.path("run/metrics.jsonl"));
    return std::count(std::istreambuf_iterator<char>(metrics), {}, '\n');
  }

  const std::string data_ = folder_.write("text.txt", numbered_lines(100));
};

TEST_F(Step0Process, WritesTheWholeReport) {
  train("--steps 30 --eval-every 15 --out run --sample line --val-data " + one_word(data_), 0,
        {"step 30/30", "sample:\nline", "report: run/report.json", "30 steps in ",
         "% of this machine's product speed (half of the steps: "});
  const Json json = report_of();
  std::ifstream metrics(folder_.path("run/metrics.jsonl"));
  std::set<std::string> written = keys_in(json);
  for (std::string line; std::getline(metrics, line);) written.merge(keys_in(parse_json(line, "")));
  const std::string page = read_text_file(LADDER_SOURCE "/docs/report.md");
  for (const std::string& key : written)
    EXPECT_NE(page.find(concat("`", key, "`")), std::string::npos) << key;
  for (const std::string& key : keys_of_every_run(page)) EXPECT_TRUE(written.contains(key)) << key;
  EXPECT_EQ(json["losses"].size(), 30u);
  EXPECT_LT(json["losses"][29].get<double>(), json["losses"][0].get<double>() - 1);
  EXPECT_EQ(json["step"], "step0_single_gpu");
  EXPECT_TRUE(json.at("attention_backend").is_null()) << "there is one on a GPU only";
  EXPECT_EQ(json["config"]["steps"], 30);
  EXPECT_GT(json.at("product_speed_share"), 0);
  EXPECT_LE(json["product_speed_share"], 1.3);
  EXPECT_EQ(json["transport"], "self");
  EXPECT_EQ(json["traffic_is_modelled"], false);
  EXPECT_EQ(json["traffic"][0]["all_reduce"]["bytes_sent"], 0);
  EXPECT_GT(json["data_bytes_read"][0].get<std::int64_t>(), 0);
  EXPECT_EQ(num_logged(), 32);  // with two evaluations

  const Json memory = json["memory"][0];
  EXPECT_GE(memory["peak"], memory["live_at_step_end"]);
  EXPECT_EQ(memory["save_peak"], memory["live_at_step_end"]);  // saved without a copy
}

// The figures of the lessons' cost cards.
TEST_F(Step0Process, TheDefaultModelNeedsWhatTheLessonsSay) {
  const std::string plain = concat(trainer("step0_single_gpu"), "--data ", one_word(data_), " ");
  run(plain + "--steps 1 --out run");
  const Json memory = report_of()["memory"][0];
  EXPECT_EQ(memory["live_at_step_end"], 13484032);
  // Kernels, and the memory that they need, differ between processors.
  EXPECT_NEAR(memory["activations_peak"].get<double>(), 19605384, 0.02 * 19605384);
  run(plain + "--dry-run", 0, {"13484032 bytes", "keeps 17899520 bytes"});
}

// The CPU's instructions choose; libtorch is told here that it has few. They choose again in a run
// that goes on, perhaps on another machine.
TEST_F(Step0Process, TheCpuChoosesTheLibraryThatMultiplies) {
  const std::string few = "env ATEN_CPU_CAPABILITY=default ";
  run(few + training("--products auto --steps 1 --out run"), 0,
      {"products            blas (this CPU: DEFAULT)\n"});
  EXPECT_EQ(report_of()["config"]["products"], "blas");
  run(few + training("--print-config"), 0, {"# products = \"blas\", which follows from"});
  train("--products onednn --steps 2 --resume auto --out run", 0,
        {"products            onednn (",
         "unlike the run that saved it: ", "--products \"onednn\" (was \"blas\")"});
  EXPECT_EQ(report_of()["config"]["products"], "onednn");
}

TEST_F(Step0Process, ExitCodesAndMessages) {
  train("--stepz 1", 2, {"--stepz", "did you mean --steps?"});
  train("--heads 3", 2, {"--channels 20", "--heads 3"});
  train("--data missing.txt", 1, {"missing.txt"});
  EXPECT_FALSE(fs::exists(folder_.path("runs")) && !fs::is_empty(folder_.path("runs")));
  train("--data tokens.bin", 2, {"--vocab-size"});
  train("--context 100000", 1, {data_, "--context"});
  train("--resume nowhere", 1, {"nowhere"});
  train("--resume auto", 2, {"--out"});
  train("--dry-run 2", 2, {"--simulate-ranks 2"});
  train("--help", 0, {"--simulate-ranks"});
  train("--dry-run", 0, {"bytes per parameter", "parameters "});
  EXPECT_FALSE(fs::exists(folder_.path("report.json")));
}

// Under a limit of 16 GiB, so that a fault costs nobody else their memory.
TEST_F(Step0Process, SizesThatNoMachineHasAreRefusedAtOnce) {
#if defined(LADDER_SANITIZE_ADDRESS) || defined(LADDER_SANITIZE_THREAD)
  const std::string limited = "timeout 60 ";  // a sanitizer reserves more
#else
  const std::string limited = "prlimit --as=17179869184 timeout 60 ";
#endif
  const auto expect = [&](const std::string& options, int code,
                          const std::vector<std::string>& says) {
    run(limited + training(options), code, says);
  };
  expect("--micro-batch-size 99999999999", 2, {"--micro-batch-size is 99999999999"});
  expect("--layers 1024 --channels 8192", 2,
         {"this run needs at least", "--layers 1024, --channels 8192", "--dry-run"});
  expect("--layers 100000", 2, {"--layers is 100000"});
  expect("--threads 65537", 2, {"--threads is 65537"});
  expect("--dry-run --micro-batch-size 2147483648", 0, {"4294967296 rows of 16"});
  // An epoch in one microbatch: it is as large as the data.
  expect("--micro-batch-size 2147483648 --num-microbatches 1 --steps 1", 0, {});
  EXPECT_TRUE(!fs::exists(folder_.path("runs")) ||
              std::distance(fs::directory_iterator(folder_.path("runs")), {}) == 1);
}

// A fresh one without --out. A folder with nothing but a lock is no run; one with a run is in use,
// takes no checkpoint of another model, and keeps its report if no step is left to take.
TEST_F(Step0Process, FoldersOfRuns) {
  for (int i = 0; i < 2; ++i) train("--steps 1 --quiet");
  EXPECT_EQ(std::distance(fs::directory_iterator(folder_.path("runs")), {}), 2);

  fs::create_directory(folder_.path("run"));
  folder_.write("run/.lock", "");
  train("--steps 3 --out run");
  const std::string metrics = read_text_file(folder_.path("run/metrics.jsonl"));
  const std::string first_report = read_text_file(folder_.path("run/report.json"));
  train(with_out("--steps 5 --channels 32", "run"), 1, {"[60]", "[96]"});
  train("--steps 5 --out run", 1);
  train(with_out("--steps 3", "run"), 0, {"no step was left to take"});
  EXPECT_EQ(read_text_file(folder_.path("run/metrics.jsonl")), metrics);
  EXPECT_EQ(read_text_file(folder_.path("run/report.json")), first_report);
}

TEST_F(Step0Process, SignalsSaveAndStopAndTheRestFollowsBitForBit) {
  const std::string options = "--steps 400 --save-every 1000";
  train(with_out(options, "whole"));
  for (const int number : {SIGUSR1, SIGTERM, SIGHUP, SIGINT}) {
    const std::string out = concat("signal", number);
    EXPECT_THAT(run_until("step 20/400", number, training(with_out(options, out)), 75),
                HasSubstr("stopped on a signal"));
    const std::size_t taken = report_of(out)["losses"].size();
    EXPECT_LT(taken, 400u);
    train(with_out(options, out));
    EXPECT_EQ(report_of(out)["first_step"], taken);
    EXPECT_EQ(report_of(out)["param_hash"], report_of("whole")["param_hash"]);
    EXPECT_EQ(report_of(out)["losses"].back(), report_of("whole")["losses"].back());
  }
}

// A scheduler starts a run again by its exit code. So from the save of the end on, no signal kills.
TEST_F(Step0Process, SignalsAtTheEndDoNotChangeTheExitCode) {
  const auto keep_on = [](const Program& program, int number) {
    for (int i = 0; i < 500; ++i) {  // to the end, and beyond: nobody has waited for it yet
      program.signal(number);
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  };
  for (const int number : {SIGUSR1, SIGTERM, SIGHUP, SIGINT}) {
    SCOPED_TRACE(number);
    Program program = start(training(concat("--steps 100 --out done", number)));
    ASSERT_TRUE(program.wait_for_output("saved ")) << program.output();
    keep_on(program, number);
    EXPECT_EQ(program.wait(20), 0) << program.output();
    Program stopped = start(training(concat("--steps 100000 --out stopped", number)));
    ASSERT_TRUE(stopped.wait_for_output("step 20/")) << stopped.output();
    stopped.signal(number);
    if (number == SIGINT) {  // a second one kills, unless it comes too late
      ASSERT_TRUE(stopped.wait_for_output("saved ")) << stopped.output();
    }
    keep_on(stopped, number);
    EXPECT_EQ(stopped.wait(20), 75) << stopped.output();
  }
}

// The update that makes the next step diverge has been saved by then.
TEST_F(Step0Process, ARunThatDivergesGoesOnFromWhatItCallsGood) {
  const std::string options = "--clip-norm 0 --warmup-steps 0 --save-every 1 --keep 1 ";
  train(options + "--steps 4 --lr 1e-3 --out run");
  train(with_out(options + "--steps 40 --lr 1e3", "run"), 1,
        {"it is now run/checkpoints/diverged_0000", "The newest good checkpoint is run/"});
  train(with_out(options + "--steps 40 --lr 1e-3", "run"), 0, {"resumed after step "});
  for (const Json& loss : report_of()["losses"]) EXPECT_TRUE(loss.is_number());
}

// A reader of the console that has gone, is full, or does not read costs output, and nothing else.
TEST_F(Step0Process, AConsoleThatTakesNothingCostsNoStep) {
  for (const char* sink : {"| head -1", "> /dev/full", ">&-", "2>&- | head -1"}) {
    SCOPED_TRACE(sink);
    const std::string line =
        concat(training("--steps 30 --out run "), sink, "; echo ends with ${PIPESTATUS[0]}");
    Program shell({"bash", "-c", line}, folder_.path());
    shell.wait();
    EXPECT_THAT(shell.output(), HasSubstr("ends with 0"));
    EXPECT_EQ(report_of()["losses"].size(), 30u);
    EXPECT_EQ(num_logged(), 30);
    fs::remove_all(folder_.path("run"));
  }
}

TEST_F(Step0Process, AReaderThatDoesNotReadHoldsUpNoSave) {
  Program program = start(training("--steps 1000000 --out run"));
  ASSERT_TRUE(program.wait_for_output("step 1/"));
  const auto log_size = [&] { return fs::file_size(folder_.path("run/metrics.jsonl")); };
  std::uintmax_t before = 0;
  do {  // until the pipe is full
    before = log_size();
    std::this_thread::sleep_for(std::chrono::seconds(1));
  } while (before < log_size());
  program.signal(SIGTERM);
  for (int i = 0; i < 200 && !fs::exists(folder_.path("run/report.json")); ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
  EXPECT_TRUE(report_of()["was_stopped"].get<bool>());
  EXPECT_EQ(program.wait(20), 75) << program.output();
}

// Nor does an evaluation, which would take minutes: the signal comes in the midst of one.
TEST_F(Step0Process, AnEvaluationHoldsUpNoSave) {
  seconds_ = 20;
  const std::string data = folder_.write("long.txt", std::string(8'000'000, 'x'));
  run_until("step 1/", SIGTERM,
            training("--steps 100 --out run --eval-every 1 --eval-samples 400000 --val-data " +
                     one_word(data)),
            75);
  EXPECT_TRUE(report_of()["val_losses"].empty());
  EXPECT_TRUE(fs::exists(folder_.path("run/checkpoints/step_000002")));
}

// While a long text is read, there is nothing to save yet.
TEST_F(Step0Process, ASignalBeforeTheFirstStepEndsAtOnce) {
  std::string text;
  for (int i = 0; i < 400'000; ++i) text += concat("{\"text\": \"line ", i, " of a text\"}\n");
  const std::string data = folder_.write("long.jsonl", text);
  for (const int number : {SIGINT, SIGTERM, SIGUSR1}) {
    Program program =
        start(training("--steps 100000 --out run --rows documents --data " + one_word(data)));
    for (int i = 0; i < 2000 && !fs::exists(folder_.path("run/.lock")); ++i)
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    program.signal(number);
    EXPECT_EQ(program.wait(20), 128 + number) << program.output();
    EXPECT_THAT(program.output(), EndsWith("stopped before training began: nothing was saved\n"));
    fs::remove_all(folder_.path("run"));
  }
}

TEST_F(Step0Process, UnderNohupAHangUpStopsNothing) {
  run_until("step 9/", SIGHUP, "nohup " + training("--steps 60 --out run"), 0);
  EXPECT_EQ(report_of()["losses"].size(), 60u);
}

// The command of a job that may have to be started again: --init-from is for its first start alone.
TEST_F(Step0Process, ARunFromOtherParametersResumesWithItsOwnCommand) {
  train("--steps 2 --seed 9 --out start");
  const std::string options = "--steps 60 --save-every 7 --keep 0 --init-from ";
  train(with_out(options + "start", "whole"));
  const std::string command = training(with_out(options + "start", "stopped"));
  EXPECT_THAT(run_until("step 9/", SIGKILL, command, 128 + SIGKILL),
              HasSubstr("starting from the parameters of start"));
  run(command, 0, {"resumed after step "});
  EXPECT_EQ(report_of("stopped")["param_hash"], report_of("whole")["param_hash"]);
  // A run does not start from its own checkpoints: they are what is resumed.
  train(with_out(options + "whole/checkpoints", "whole"), 1,
        {"--init-from whole/checkpoints", "--out whole"});
}

// A run that saves after every second step is killed repeatedly at random moments. Each time it
// resumes from a whole checkpoint, and its end is that of an uninterrupted run.
TEST_F(Step0Process, KillsAtAnyMomentLeaveWholeCheckpoints) {
  const std::string options = "--steps 300 --save-every 2";
  train(with_out(options, "whole"));
  Random random(
      static_cast<std::uint64_t>(std::chrono::steady_clock::now().time_since_epoch().count()));
  int exit_code = -1, kills = 0;
  while (exit_code != 0 && kills < 200) {
    Program program = start(training(with_out(options, "killed")));
    if (kills < 12) {
      program.wait_for_output("step ");
      std::this_thread::sleep_for(std::chrono::microseconds(random.below(60000)));
      program.signal(SIGKILL);
      ++kills;
    }
    exit_code = program.wait();
    ASSERT_TRUE(exit_code == 0 || exit_code == 128 + SIGKILL) << program.output();
  }
  EXPECT_EQ(report_of("killed")["param_hash"], report_of("whole")["param_hash"]);
  for (const fs::directory_entry& entry :
       fs::directory_iterator(folder_.path("killed/checkpoints"))) {
    EXPECT_THAT(entry.path().filename().string(), ::testing::StartsWith("step_"));
  }
}

// Two processes use one folder: the second changes nothing, however it is started. When the first
// one is killed, the folder is free.
TEST_F(Step0Process, AFolderHasOneWriterAtATime) {
  const std::string command = training("--steps 100000 --save-every 2 --out run --resume auto");
  Program first = start(command);
  ASSERT_TRUE(first.wait_for_output("step_000002")) << first.output();
  for (const char* resume : {"auto", "none", "run"})
    train(concat("--steps 4 --out run --keep 1 --resume ", resume), 1,
          {"error: --out run is in use by process "});
  EXPECT_FALSE(fs::exists(folder_.path("run/report.json")));
  EXPECT_TRUE(first.wait_for_output("step_000010")) << first.output();  // undisturbed
  // Reading is allowed: another run may start from the checkpoints in the folder.
  train("--steps 1 --out other --init-from run --quiet");
  first.signal(SIGKILL);
  EXPECT_EQ(first.wait(), 128 + SIGKILL);
  train(with_out("--steps 100000 --dry-run", "run"));
  Program fourth = start(command);
  EXPECT_TRUE(fourth.wait_for_output("resumed after step ")) << fourth.output();
  EXPECT_TRUE(fourth.wait_for_output("grad norm")) << fourth.output();  // it trains
  fourth.signal(SIGTERM);
  EXPECT_EQ(fourth.wait(), 75) << fourth.output();
  EXPECT_FALSE(fs::exists(folder_.path("run/.lock")));
}

}  // namespace
}  // namespace ladder
