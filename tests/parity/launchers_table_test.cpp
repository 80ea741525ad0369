// scripts/ladder_rungs.tsv, which ./ladder run follows, must agree with tests/parity/rungs.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <fstream>
#include <map>
#include <sstream>
#include <string>
#include <vector>

#include "tests/parity/rungs.hpp"

namespace ladder {
namespace {

// Each step must equal the previous one; with several microbatches, to the bit if the sums of both
// have the same order. Rungs with other objectives read other rows: ladder_table.py checks those.
TEST(LaunchersTable, HasTheSameRungs) {
  using Entry = std::array<std::string, 3>;  // a step, the one that it must equal, within what
  std::vector<Entry> found, wanted = {{oracle().step, "-", "-"},
                                      {oracle().step, "-", "-"},  // untied
                                      {pipeline().step, oracle().step, "bits"},
                                      {oracle().step, "-", "-"},  // in parts
                                      {"tensor_parallel", oracle().step, "bits"},
                                      {diloco().step, "-", "-"}};
  std::map<std::string, std::string> steps = {{"-", "-"}};  // of the rungs so far
  std::ifstream file(LADDER_SOURCE "/scripts/ladder_rungs.tsv");
  for (std::string line, name, step, ranks, when, equals, within, reads;
       std::getline(file, line);) {
    if (line.starts_with("#")) continue;
    std::istringstream fields(line);
    fields >> name >> step >> ranks >> when >> equals >> within >> reads;
    steps[name] = step;
    if (reads != "-") found.push_back({step, steps.at(equals), within});
  }
  const Trainer* previous = &oracle();
  for (const Trainer& rung : rungs()) {
    const bool has_its_order = rung.sums_each_microbatch == previous->sums_each_microbatch;
    wanted.push_back({rung.step, previous->step, has_its_order ? "bits" : "bits,1e-2"});
    previous = &rung;
  }
  EXPECT_THAT(found, ::testing::UnorderedElementsAreArray(wanted));
}

}  // namespace
}  // namespace ladder
