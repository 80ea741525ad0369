// Step 9's program: what it refuses, and what it makes of rare rows.
#include "common/testing/process_test.hpp"

namespace ladder {
namespace {

class DilocoProgram : public ProcessTest {
 protected:
  void train(const std::string& options, int exit_code = 0,
             const std::vector<std::string>& says = {}) const {
    run(concat(one_word(LADDER_TRAINER),
               " --layers 1 --heads 2 --channels 16 --context 16 --steps 12 --sync-every 12 "
               "--transport threads --log-every 1 ",
               options),
        exit_code, says);
  }
};

// One document is empty: a batch of it alone has nothing to predict, and adds nothing.
TEST_F(DilocoProgram, ABatchWithoutTargetsAddsNothing) {
  folder_.write("empty.jsonl", "{\"answer\": \"\"}\n{\"answer\": \"abc\"}\n");
  train("--data empty.jsonl --rows documents --micro-batch-size 1 --ranks 2 --out run");
  const Json losses = report_of()["losses"];
  EXPECT_EQ(losses.size(), 12U);
  for (const Json& loss : losses) EXPECT_GT(loss, 0);
}

// The average in flight is that of one of two fragments. Of three, none has the same place. Between
// two rounds, after step 6, nothing is in flight.
TEST_F(DilocoProgram, AnAverageInFlightIsOfTheSameFragments) {
  const std::string one = "--micro-batch-size 2 --sync-delay 2 --ranks 1 ";
  train(one + "--fragments 2 --save-every 1 --keep 0 --out saved");
  const auto resume = [&](int step, int fragments, int exit_code, const std::string& says) {
    train(concat(one, "--resume saved/checkpoints/step_00000", step, " --out from", step, "_",
                 fragments, " --fragments ", fragments),
          exit_code, {says});
  };
  for (const int fragments : {1, 3, 4}) {
    resume(5, fragments, 2,
           concat("--fragments ", fragments,
                  ": the checkpoint holds the average of one of 2 fragments, in flight; resume "
                  "with --fragments 2, or from a checkpoint between two rounds"));
    resume(6, fragments, 0, "resumed after step 6");
  }
  for (const int step : {5, 6}) {
    resume(step, 2, 0, "resumed after step ");
    EXPECT_EQ(report_of(concat("from", step, "_2"))["param_hash"],
              report_of("saved")["param_hash"]);
  }
}

}  // namespace
}  // namespace ladder
