// A fixture for tests of real programs: command lines of this build's trainers, a folder in which
// they run, and the reports that they leave there.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "common/core/check.hpp"
#include "common/core/json.hpp"
#include "common/testing/program.hpp"
#include "common/testing/temp_folder.hpp"
#include "common/train/checkpoint/disk.hpp"

namespace ladder {

class ProcessTest : public ::testing::Test {
 protected:
#ifdef LADDER_BUILD
  // The trainer's path, because this build need not be build/release. `step`: the folder of a step
  // or chapter.
  static std::string trainer(const std::string& step) {
    const std::string name = std::filesystem::path(step).filename();
    return one_word(concat(LADDER_BUILD, "/", step, "/", name)) + " ";
  }
#endif
#ifdef LADDER_MPIEXEC
  static std::string mpirun(int num_ranks) {
    return concat(mpi_launch(LADDER_MPIEXEC), "-n ", num_ranks, " ");
  }
#endif
  // Averages that are in flight between rounds, and come in parts.
  static std::string rounds_of(const std::string& step) {
    return step == "step9_diloco" ? "--sync-every 4 --fragments 2 --sync-delay 1 " : "";
  }
  static std::string numbered_lines(int count) {
    std::string text;
    for (int i = 0; i < count; ++i) text += concat("line ", i, " of a text that repeats itself. ");
    return text;
  }

  Program start(const std::string& command) const {
    return Program(words(command), folder_.path());
  }
  // Expects that the command ends in time, with this exit code, and that it says all of this.
  // Returns what it has said.
  std::string run(const std::string& command, int exit_code = 0,
                  const std::vector<std::string>& says = {}) const {
    Program program = start(command);
    EXPECT_EQ(program.wait(seconds_), exit_code) << command << "\n" << program.output();
    for (const std::string& part : says)
      EXPECT_THAT(program.output(), ::testing::HasSubstr(part)) << command;
    return program.output();
  }
#ifdef LADDER_SOURCE
  // The command that compares two runs here.
  static std::string compared(const std::string& out, const std::string& wanted) {
    return concat("python3 ", one_word(LADDER_SOURCE "/scripts/compare_runs.py"), " ", out, " ",
                  wanted);
  }
#endif
  // Runs a command that gets this signal once it has said that.
  std::string run_until(const std::string& said, int signal, const std::string& command,
                        int exit_code) const {
    Program program = start(command);
    EXPECT_TRUE(program.wait_for_output(said)) << program.output();
    program.signal(signal);
    EXPECT_EQ(program.wait(seconds_), exit_code) << command << "\n" << program.output();
    return program.output();
  }
  Json report_of(const std::string& out = "run") const {
    return parse_json(read_text_file(folder_.path(out + "/report.json")), out);
  }

  double seconds_ = 600;
  TempFolder folder_;
};

}  // namespace ladder
