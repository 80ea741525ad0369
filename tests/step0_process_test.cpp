// Step 0 as a user sees it: a process with options, exit codes, signals and files. Nothing is
// simulated: the program and the kills are real.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <thread>

#include "common/core/check.hpp"
#include "common/core/json.hpp"
#include "common/core/seed.hpp"
#include "common/testing/program.hpp"
#include "common/testing/temp_folder.hpp"
#include "common/train/checkpoint/disk.hpp"

namespace ladder {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::HasSubstr;

using Arguments = std::vector<std::string>;

const std::string kProgram = LADDER_BUILD "/step0_single_gpu/step0_single_gpu";

// A run that takes a few milliseconds per step and ends in the middle of its second epoch. With
// 20 channels, tensors need padding.
const std::string kOptions =
    "--layers 1 --heads 2 --channels 20 --context 16 --micro-batch-size 4 --num-microbatches 2 "
    "--lr 1e-2 --log-every 1";

class Step0Process : public ::testing::Test {
 protected:
  Step0Process() {
    std::string text;
    for (int i = 0; i < 100; ++i) text += concat("line ", i, " of a text that repeats itself. ");
    data_ = folder_.write("text.txt", text);
  }

  Arguments command(const Arguments& more) const {
    Arguments all = words(concat(one_word(kProgram), " ", kOptions, " --data ", one_word(data_)));
    all.insert(all.end(), more.begin(), more.end());
    return all;
  }
  ProgramResult run(const Arguments& more) const {
    return run_program(command(more), folder_.path());
  }
  // In this folder, where a run that has begun goes on.
  static Arguments with_out(Arguments options, const std::string& out) {
    options.insert(options.end(), {"--out", out, "--resume", "auto"});
    return options;
  }
  Json report(const std::string& out) const {
    return parse_json(read_text_file(folder_.path(out + "/report.json")), out);
  }

  TempFolder folder_;
  std::string data_;
};

TEST_F(Step0Process, WritesTheWholeReport) {
  const ProgramResult result = run({"--steps", "30", "--out", "run", "--sample", "line"});
  ASSERT_EQ(result.exit_code, 0) << result.output;
  EXPECT_THAT(result.output, AllOf(HasSubstr("step 30/30"), HasSubstr("sample:\nline"),
                                   HasSubstr("report: run/report.json")));
  const Json json = report("run");
  for (const char* key :
       {"schema_version",      "step",           "world_size",     "data_parallel_size",
        "pipeline_stages",     "num_parameters", "torch_version",  "config",
        "first_step",          "losses",         "grad_norms",     "param_norms",
        "learning_rates",      "target_tokens",  "unit",           "units",
        "units_per_second",    "val_losses",     "skipped_steps",  "data_bytes_read",
        "param_hash",          "memory",         "memory_theory",  "transport",
        "traffic_is_modelled", "traffic",        "traffic_theory", "step_seconds",
        "tokens_per_second"}) {
    EXPECT_TRUE(json.contains(key)) << key;
  }
  EXPECT_EQ(json["losses"].size(), 30u);
  EXPECT_LT(json["losses"][29].get<double>(), json["losses"][0].get<double>() - 1);
  EXPECT_EQ(json["step"], "step0_single_gpu");
  EXPECT_TRUE(json.at("attention_backend").is_null()) << "there is one on a GPU only";
  EXPECT_EQ(json["config"]["steps"], 30);
  EXPECT_EQ(json["transport"], "self");
  EXPECT_EQ(json["traffic_is_modelled"], false);
  EXPECT_EQ(json["traffic"][0]["all_reduce"]["bytes_sent"], 0);
  EXPECT_GT(json["data_bytes_read"][0].get<std::int64_t>(), 0);
  std::ifstream metrics(folder_.path("run/metrics.jsonl"));
  EXPECT_EQ(std::count(std::istreambuf_iterator<char>(metrics), {}, '\n'), 30);

  // Between steps it holds what theory says, to the byte.
  const Json memory = json["memory"][0], theory = json["memory_theory"][0];
  std::int64_t sum = 0;
  for (const char* category : {"parameters", "gradients", "optimizer"}) {
    EXPECT_EQ(memory[category], theory[category]) << category;
    sum += theory[category].get<std::int64_t>();
  }
  EXPECT_EQ(memory["other"], 0) << memory["other_by_name"];
  EXPECT_EQ(memory["communication"], 0);
  EXPECT_EQ(memory["live_at_step_end"], sum);
  EXPECT_GE(memory["peak"].get<std::int64_t>(),
            sum + memory["activations_peak"].get<std::int64_t>());
  EXPECT_EQ(memory["save_peak"], sum);  // a rank that holds all state saves it without a copy
}

// The figures of the lessons' cost cards.
TEST_F(Step0Process, TheDefaultModelNeedsWhatTheLessonsSay) {
  const auto run_default = [&](const std::string& options) {
    return run_program(words(concat(one_word(kProgram), " --data ", one_word(data_), " ", options)),
                       folder_.path());
  };
  ASSERT_EQ(run_default("--steps 1 --out run").exit_code, 0);
  const Json memory = report("run")["memory"][0];
  EXPECT_EQ(memory["live_at_step_end"], 13484032);
  // Kernels, and the memory that they need, differ between processors.
  EXPECT_NEAR(memory["activations_peak"].get<double>(), 19605384, 0.02 * 19605384);
  EXPECT_THAT(run_default("--dry-run").output,
              AllOf(HasSubstr("13484032 bytes"), HasSubstr("keeps 17899520 bytes")));
}

TEST_F(Step0Process, ExitCodesAndMessages) {
  const auto expect = [&](const Arguments& arguments, int code,
                          const std::vector<std::string>& parts) {
    const ProgramResult result = run(arguments);
    EXPECT_EQ(result.exit_code, code) << result.output;
    for (const std::string& part : parts) EXPECT_THAT(result.output, HasSubstr(part));
  };
  expect({"--stepz", "1"}, 2, {"--stepz", "did you mean --steps?"});
  expect({"--heads", "3"}, 2, {"--channels 20", "--heads 3"});
  expect({"--data", "missing.txt"}, 1, {"missing.txt"});
  EXPECT_FALSE(fs::exists(folder_.path("runs")) && !fs::is_empty(folder_.path("runs")));
  expect({"--data", "tokens.bin"}, 2, {"--vocab-size"});
  expect({"--context", "100000"}, 1, {data_, "--context"});
  expect({"--resume", "nowhere"}, 1, {"nowhere"});
  expect({"--resume", "auto"}, 2, {"--out"});
  expect({"--dry-run", "2"}, 2, {"--simulate-ranks 2"});
  expect({"--help"}, 0, {"--simulate-ranks"});
  expect({"--dry-run"}, 0, {"bytes per parameter", "parameters "});
  EXPECT_FALSE(fs::exists(folder_.path("report.json")));
}

// Under a limit of 16 GiB, so that a fault costs nobody else their memory.
TEST_F(Step0Process, SizesThatNoMachineHasAreRefusedAtOnce) {
  const auto expect = [&](const Arguments& arguments, int code,
                          const std::vector<std::string>& parts) {
#if defined(LADDER_SANITIZE_ADDRESS) || defined(LADDER_SANITIZE_THREAD)
    Arguments all = {"timeout", "60"};  // a sanitizer reserves more
#else
    Arguments all = {"prlimit", "--as=17179869184", "timeout", "60"};
#endif
    const Arguments own = command(arguments);
    all.insert(all.end(), own.begin(), own.end());
    const ProgramResult result = run_program(all, folder_.path());
    EXPECT_EQ(result.exit_code, code) << result.output;
    for (const std::string& part : parts) EXPECT_THAT(result.output, HasSubstr(part));
  };
  expect({"--micro-batch-size", "99999999999"}, 2, {"--micro-batch-size is 99999999999"});
  expect({"--layers", "1024", "--channels", "8192"}, 2,
         {"this run needs at least", "--layers 1024, --channels 8192", "--dry-run"});
  expect({"--layers", "100000"}, 2, {"--layers is 100000"});
  expect({"--threads", "65537"}, 2, {"--threads is 65537"});
  expect({"--dry-run", "--micro-batch-size", "2147483648"}, 0, {"4294967296 rows of 16"});
  // An epoch in one microbatch: it is as large as the data.
  expect({"--micro-batch-size", "2147483648", "--num-microbatches", "1", "--steps", "1"}, 0, {});
  EXPECT_TRUE(!fs::exists(folder_.path("runs")) ||
              std::distance(fs::directory_iterator(folder_.path("runs")), {}) == 1);
}

// A fresh one without --out. A folder with nothing but a lock is no run; one with a run is in use,
// takes no checkpoint of another model, and keeps its report if no step is left to take.
TEST_F(Step0Process, FoldersOfRuns) {
  for (int i = 0; i < 2; ++i) ASSERT_EQ(run({"--steps", "1", "--quiet"}).exit_code, 0);
  EXPECT_EQ(std::distance(fs::directory_iterator(folder_.path("runs")), {}), 2);

  fs::create_directory(folder_.path("run"));
  folder_.write("run/.lock", "");
  ASSERT_EQ(run({"--steps", "3", "--out", "run"}).exit_code, 0);
  const std::string metrics = read_text_file(folder_.path("run/metrics.jsonl"));
  const std::string first_report = read_text_file(folder_.path("run/report.json"));
  const ProgramResult other =
      run({"--steps", "5", "--out", "run", "--resume", "auto", "--channels", "32"});
  EXPECT_EQ(other.exit_code, 1);
  EXPECT_THAT(other.output, AllOf(HasSubstr("[60]"), HasSubstr("[96]")));
  EXPECT_EQ(run({"--steps", "5", "--out", "run"}).exit_code, 1);
  const ProgramResult done = run({"--steps", "3", "--out", "run", "--resume", "auto"});
  EXPECT_EQ(done.exit_code, 0);
  EXPECT_THAT(done.output, HasSubstr("no step was left to take"));
  EXPECT_EQ(read_text_file(folder_.path("run/metrics.jsonl")), metrics);
  EXPECT_EQ(read_text_file(folder_.path("run/report.json")), first_report);
}

TEST_F(Step0Process, SignalsSaveAndStopAndTheRestFollowsBitForBit) {
  const Arguments options = {"--steps", "400", "--save-every", "1000"};
  ASSERT_EQ(run(with_out(options, "whole")).exit_code, 0);
  for (const int number : {SIGUSR1, SIGTERM, SIGHUP, SIGINT}) {
    const std::string out = concat("signal", number);
    Program program(command(with_out(options, out)), folder_.path());
    ASSERT_TRUE(program.wait_for_output("step 20/400")) << program.output();
    program.signal(number);
    EXPECT_EQ(program.wait(), 75) << program.output();
    EXPECT_THAT(program.output(), HasSubstr("stopped on a signal"));
    const std::size_t taken = report(out)["losses"].size();
    EXPECT_LT(taken, 400u);
    ASSERT_EQ(run(with_out(options, out)).exit_code, 0);
    EXPECT_EQ(report(out)["first_step"], taken);
    EXPECT_EQ(report(out)["param_hash"], report("whole")["param_hash"]);
    EXPECT_EQ(report(out)["losses"].back(), report("whole")["losses"].back());
  }
}

// A reader of the console that has gone, is full, or does not read costs output, and nothing else.
TEST_F(Step0Process, AConsoleThatTakesNothingCostsNoStep) {
  for (const char* sink : {"| head -1", "> /dev/full", ">&-", "2>&- | head -1"}) {
    SCOPED_TRACE(sink);
    const std::string line =
        concat(kProgram, " ", kOptions, " --data ", one_word(data_), " --steps 30 --out run ", sink,
               "; echo ends with ${PIPESTATUS[0]}");
    EXPECT_THAT(run_program({"bash", "-c", line}, folder_.path()).output, HasSubstr("ends with 0"));
    EXPECT_EQ(report("run")["losses"].size(), 30u);
    std::ifstream metrics(folder_.path("run/metrics.jsonl"));
    EXPECT_EQ(std::count(std::istreambuf_iterator<char>(metrics), {}, '\n'), 30);
    fs::remove_all(folder_.path("run"));
  }
}

TEST_F(Step0Process, AReaderThatDoesNotReadHoldsUpNoSave) {
  Program program(command({"--steps", "1000000", "--out", "run"}), folder_.path());
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
  EXPECT_TRUE(report("run")["was_stopped"].get<bool>());
  EXPECT_EQ(program.wait(20), 75) << program.output();
}

// Nor does an evaluation, which would take minutes: the signal comes in the midst of one.
TEST_F(Step0Process, AnEvaluationHoldsUpNoSave) {
  const std::string text(8'000'000, 'x');
  Program program(command({"--steps", "100", "--out", "run", "--eval-every", "1", "--eval-samples",
                           "400000", "--val-data", folder_.write("long.txt", text)}),
                  folder_.path());
  ASSERT_TRUE(program.wait_for_output("step 1/")) << program.output();
  program.signal(SIGTERM);
  EXPECT_EQ(program.wait(20), 75) << program.output();
  EXPECT_TRUE(report("run")["val_losses"].empty());
  EXPECT_TRUE(fs::exists(folder_.path("run/checkpoints/step_000002")));
}

// While a long text is read, there is nothing to save yet.
TEST_F(Step0Process, ASignalBeforeTheFirstStepEndsAtOnce) {
  std::string text;
  for (int i = 0; i < 400'000; ++i) text += concat("{\"text\": \"line ", i, " of a text\"}\n");
  const std::string data = folder_.write("long.jsonl", text);
  for (const int number : {SIGINT, SIGTERM, SIGUSR1}) {
    Program program(
        command({"--steps", "100000", "--out", "run", "--data", data, "--rows", "documents"}),
        folder_.path());
    for (int i = 0; i < 2000 && !fs::exists(folder_.path("run/.lock")); ++i)
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    program.signal(number);
    EXPECT_EQ(program.wait(20), 128 + number) << program.output();
    EXPECT_EQ(program.output(), "stopped before training began: nothing was saved\n");
    fs::remove_all(folder_.path("run"));
  }
}

TEST_F(Step0Process, UnderNohupAHangUpStopsNothing) {
  Arguments arguments = command({"--steps", "60", "--out", "run"});
  arguments.insert(arguments.begin(), "nohup");
  Program program(arguments, folder_.path());
  ASSERT_TRUE(program.wait_for_output("step 9/")) << program.output();
  program.signal(SIGHUP);
  EXPECT_EQ(program.wait(), 0) << program.output();
  EXPECT_EQ(report("run")["losses"].size(), 60u);
}

// The command of a job that may have to be started again: --init-from is for its first start alone.
TEST_F(Step0Process, ARunFromOtherParametersResumesWithItsOwnCommand) {
  ASSERT_EQ(run({"--steps", "2", "--seed", "9", "--out", "start"}).exit_code, 0);
  const Arguments options = {"--steps", "60", "--save-every", "7",
                             "--keep",  "0",  "--init-from",  "start"};
  ASSERT_EQ(run(with_out(options, "whole")).exit_code, 0);
  Program program(command(with_out(options, "stopped")), folder_.path());
  ASSERT_TRUE(program.wait_for_output("starting from the parameters of start")) << program.output();
  ASSERT_TRUE(program.wait_for_output("step 9/")) << program.output();
  program.signal(SIGKILL);
  program.wait();
  const ProgramResult rest = run(with_out(options, "stopped"));
  ASSERT_EQ(rest.exit_code, 0) << rest.output;
  EXPECT_THAT(rest.output, HasSubstr("resumed after step "));
  EXPECT_EQ(report("stopped")["param_hash"], report("whole")["param_hash"]);
  // Not from its own checkpoints: they are what is resumed.
  Arguments own = with_out(options, "whole");
  own[7] = "whole/checkpoints";
  const ProgramResult refused = run(own);
  EXPECT_EQ(refused.exit_code, 1) << refused.output;
  EXPECT_THAT(refused.output,
              AllOf(HasSubstr("--init-from whole/checkpoints"), HasSubstr("--out whole")));
}

// A run that saves after every second step is killed repeatedly at random moments. Each time it
// resumes from a whole checkpoint, and its end is that of an uninterrupted run.
TEST_F(Step0Process, KillsAtAnyMomentLeaveWholeCheckpoints) {
  const Arguments options = {"--steps", "300", "--save-every", "2"};
  ASSERT_EQ(run(with_out(options, "whole")).exit_code, 0);
  Random random(
      static_cast<std::uint64_t>(std::chrono::steady_clock::now().time_since_epoch().count()));
  int exit_code = -1, kills = 0;
  while (exit_code != 0 && kills < 200) {
    Program program(command(with_out(options, "killed")), folder_.path());
    if (kills < 12) {
      program.wait_for_output("step ");
      std::this_thread::sleep_for(std::chrono::microseconds(random.below(60000)));
      program.signal(SIGKILL);
      ++kills;
    }
    exit_code = program.wait();
    ASSERT_TRUE(exit_code == 0 || exit_code == 128 + SIGKILL) << program.output();
  }
  EXPECT_EQ(report("killed")["param_hash"], report("whole")["param_hash"]);
  for (const fs::directory_entry& entry :
       fs::directory_iterator(folder_.path("killed/checkpoints"))) {
    EXPECT_THAT(entry.path().filename().string(), ::testing::StartsWith("step_"));
  }
}

// SGD with this learning rate produces a model whose next loss is not finite: the run ends with an
// error, saves nothing, and leaves older checkpoints to go on from.
TEST_F(Step0Process, ARunThatDivergesEndsWithAnErrorAndSavesNothing) {
  const auto sgd = [](const Arguments& more) {
    Arguments all = {"--optimizer", "sgd", "--save-every", "2", "--keep", "3", "--out", "run"};
    all.insert(all.end(), more.begin(), more.end());
    return all;
  };
  const Arguments diverging = sgd({"--lr", "1e30", "--clip-norm", "0", "--steps", "40"});
  const ProgramResult result = run(diverging);
  EXPECT_EQ(result.exit_code, 1) << result.output;
  EXPECT_THAT(result.output, AllOf(HasSubstr("error: step 2: the loss is not finite"),
                                   HasSubstr("--lr (now 1e+30)"), HasSubstr("--clip-norm 1")));
  EXPECT_FALSE(fs::exists(folder_.path("run/checkpoints")));
  EXPECT_FALSE(fs::exists(folder_.path("run/report.json")));
  fs::remove_all(folder_.path("run"));

  ASSERT_EQ(run(sgd({"--steps", "4"})).exit_code, 0);
  const std::string model = folder_.path("run/checkpoints/step_000004/model.safetensors");
  const std::string before = read_text_file(model);
  Arguments resumed = diverging;
  resumed.insert(resumed.end(), {"--resume", "auto"});
  const ProgramResult later = run(resumed);
  EXPECT_EQ(later.exit_code, 1) << later.output;
  EXPECT_THAT(later.output, AllOf(HasSubstr("error: step 6: "), HasSubstr("step_000004")));
  EXPECT_TRUE(fs::exists(folder_.path("run/checkpoints/step_000002")));
  EXPECT_EQ(read_text_file(model), before);
  const ProgramResult rest = run(sgd({"--steps", "10", "--resume", "auto"}));
  EXPECT_EQ(rest.exit_code, 0) << rest.output;
  EXPECT_EQ(report("run")["first_step"], 4);
  EXPECT_EQ(report("run")["losses"].size(), 6u);
}

// Two processes use one folder: the second changes nothing, however it is started. When the first
// one is killed, the folder is free.
TEST_F(Step0Process, AFolderHasOneWriterAtATime) {
  const Arguments options = {"--steps", "100000", "--save-every", "2",
                             "--out",   "run",    "--resume",     "auto"};
  Program first(command(options), folder_.path());
  ASSERT_TRUE(first.wait_for_output("step_000002")) << first.output();
  for (const char* resume : {"auto", "none", "run"}) {
    const ProgramResult second =
        run({"--steps", "4", "--out", "run", "--resume", resume, "--keep", "1"});
    EXPECT_EQ(second.exit_code, 1) << second.output;
    EXPECT_THAT(second.output, HasSubstr("error: --out run is in use by process "));
  }
  EXPECT_FALSE(fs::exists(folder_.path("run/report.json")));
  EXPECT_TRUE(first.wait_for_output("step_000010")) << first.output();  // undisturbed
  // Reading is allowed: another run may start from the checkpoints in the folder.
  const ProgramResult reader =
      run({"--steps", "1", "--out", "other", "--init-from", "run", "--quiet"});
  EXPECT_EQ(reader.exit_code, 0) << reader.output;
  first.signal(SIGKILL);
  EXPECT_EQ(first.wait(), 128 + SIGKILL);
  const ProgramResult third =
      run({"--steps", "100000", "--out", "run", "--resume", "auto", "--dry-run"});
  EXPECT_EQ(third.exit_code, 0) << third.output;
  Program fourth(command(options), folder_.path());
  EXPECT_TRUE(fourth.wait_for_output("resumed after step ")) << fourth.output();
  EXPECT_TRUE(fourth.wait_for_output("grad norm")) << fourth.output();  // it trains
  fourth.signal(SIGTERM);
  EXPECT_EQ(fourth.wait(), 75) << fourth.output();
  EXPECT_FALSE(fs::exists(folder_.path("run/.lock")));
}

#ifdef LADDER_MPIEXEC
TEST_F(Step0Process, SeveralRanksAreRefusedWithTheWayOut) {
  Arguments arguments = words(mpi_launch(LADDER_MPIEXEC) + "-n 2");
  const Arguments program = command({"--steps", "2", "--out", "run"});
  arguments.insert(arguments.end(), program.begin(), program.end());
  const ProgramResult result = run_program(arguments, folder_.path());
  EXPECT_EQ(result.exit_code, 2) << result.output;
  EXPECT_THAT(result.output, HasSubstr("--simulate-ranks 2"));
  EXPECT_FALSE(std::filesystem::exists(folder_.path("run/checkpoints")))
      << "refused after training";
}
#endif

}  // namespace
}  // namespace ladder
