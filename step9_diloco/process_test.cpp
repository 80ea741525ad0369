// Step 9's program: what it refuses, and what it makes of rare rows.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "common/core/check.hpp"
#include "common/core/json.hpp"
#include "common/testing/program.hpp"
#include "common/testing/temp_folder.hpp"
#include "common/train/checkpoint/disk.hpp"

namespace ladder {
namespace {

using ::testing::HasSubstr;

class DilocoProgram : public ::testing::Test {
 protected:
  ProgramResult train(const std::string& options) const {
    return run_program(
        words(one_word(LADDER_TRAINER) +
              " --layers 1 --heads 2 --channels 16 --context 16 --steps 12 --sync-every 12 "
              "--transport threads --log-every 1 " +
              options),
        folder_.path());
  }
  Json report(const std::string& out) const {
    return parse_json(read_text_file(folder_.path(out + "/report.json")), "report.json");
  }
  TempFolder folder_;
};

// One document is empty: a batch of it alone has nothing to predict, and adds nothing.
TEST_F(DilocoProgram, ABatchWithoutTargetsAddsNothing) {
  folder_.write("empty.jsonl", "{\"answer\": \"\"}\n{\"answer\": \"abc\"}\n");
  const ProgramResult ranks =
      train("--data empty.jsonl --rows documents --micro-batch-size 1 --ranks 2 --out ranks");
  EXPECT_EQ(ranks.exit_code, 0) << ranks.output;
  const Json losses = report("ranks")["losses"];
  EXPECT_EQ(losses.size(), 12U);
  for (const Json& loss : losses) EXPECT_GT(loss, 0);
}

// The average in flight is that of one of two fragments. Of three, none has the same place. Between
// two rounds, after step 6, nothing is in flight.
TEST_F(DilocoProgram, AnAverageInFlightIsOfTheSameFragments) {
  const auto train_one = [&](const std::string& options) {
    return train("--micro-batch-size 2 --sync-delay 2 --ranks 1 " + options);
  };
  const ProgramResult saved = train_one("--fragments 2 --save-every 1 --keep 0 --out saved");
  EXPECT_EQ(saved.exit_code, 0) << saved.output;
  const auto resume = [&](int step, int fragments) {
    return train_one(concat("--resume saved/checkpoints/step_00000", step, " --out from", step, "_",
                            fragments, " --fragments ", fragments));
  };
  for (const int fragments : {1, 3, 4}) {
    const ProgramResult in_flight = resume(5, fragments), between = resume(6, fragments);
    EXPECT_EQ(in_flight.exit_code, 2);
    EXPECT_THAT(in_flight.output,
                HasSubstr(concat("--fragments ", fragments,
                                 ": the checkpoint holds the average of "
                                 "one of 2 fragments, in flight; resume with --fragments 2, or "
                                 "from a checkpoint between two rounds")));
    EXPECT_EQ(between.exit_code, 0) << between.output;
    EXPECT_THAT(between.output, HasSubstr("resumed after step 6"));
  }
  for (const int step : {5, 6}) {
    const ProgramResult same = resume(step, 2);
    EXPECT_EQ(same.exit_code, 0) << same.output;
    EXPECT_EQ(report(concat("from", step, "_2"))["param_hash"], report("saved")["param_hash"]);
  }
}

TEST_F(DilocoProgram, NamesTheProgramOfWorkersThatMayDie) {
  folder_.write("old.toml", "elastic = \"127.0.0.1:29400\"\n");
  for (const char* const options :
       {"--elastic 127.0.0.1:29400 --workers 3 --worker 1", "--elastic=h:1", "--worker 1",
        "--workers 3", "--min-workers 2", "--join-timeout 1", "--round-timeout 1", "--patience 5",
        "--merge tokens", "--elastic-key k", "--config old.toml"}) {
    const ProgramResult result = train(options);
    EXPECT_EQ(result.exit_code, 2) << options;
    EXPECT_THAT(result.output, HasSubstr("./ladder train elastic --elastic HOST:PORT")) << options;
  }
}

}  // namespace
}  // namespace ladder
