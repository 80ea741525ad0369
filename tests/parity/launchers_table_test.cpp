// scripts/ladder_stages.tsv, which ./ladder run follows, must agree with tests/parity/rungs.
#include <gtest/gtest.h>

#include <fstream>
#include <map>
#include <sstream>
#include <string>

#include "tests/parity/rungs.hpp"

namespace ladder {
namespace {

// The part of a line in ./ladder run's table that says which run must equal which.
struct Stage {
  std::string name, step, ranks, when, equals, within, reads, options;

  Fold fold() const {
    if (step != oracle().step()) return rung_of(step).fold;
    return options.find("--fold ranks-first") != std::string::npos ? Fold::kRanksFirst
                                                                   : Fold::kMicrobatchesFirst;
  }
};

// The stages of a run with this many microbatches, each of which `equals` at most one.
std::map<std::string, Stage> launchers_stages(int num_microbatches) {
  std::ifstream file(LADDER_SOURCE "/scripts/ladder_stages.tsv");
  std::map<std::string, Stage> stages;
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with("#")) continue;
    std::istringstream fields(line);
    Stage stage;
    for (std::string* field : {&stage.name, &stage.step, &stage.ranks, &stage.when, &stage.equals,
                               &stage.within, &stage.reads, &stage.options}) {
      std::getline(fields, *field, '\t');
    }
    if (stage.when == "m>1" && num_microbatches == 1) continue;
    std::istringstream names(stage.equals);
    while (std::getline(names, stage.equals, ',') && stage.equals != "-") {
      if (stages.contains(stage.equals)) break;
    }
    stages[stage.name] = stage;
  }
  return stages;
}

// With one microbatch each step must equal the previous one.
TEST(LaunchersTable, HasTheSameRungs) {
  std::map<std::string, std::string> equals, wanted = {{oracle().step(), "-"}};
  const std::map<std::string, Stage> stages = launchers_stages(1);
  for (const auto& [name, stage] : stages) {
    EXPECT_TRUE(stage.within == "bits" || stage.equals == "-") << name;
    equals[stage.step] = stage.equals == "-" ? "-" : stages.at(stage.equals).step;
  }
  for (const Rung& rung : rungs()) wanted[rung.step()] = rung.equals.front();
  wanted[pipeline().step()] = pipeline().equals.front();
  EXPECT_EQ(equals, wanted);
}

// With several microbatches bits are equal only if the sums have the same order.
TEST(LaunchersTable, ComparesEqualOrdersOfSums) {
  const std::map<std::string, Stage> stages = launchers_stages(2);
  EXPECT_EQ(stages.size(), rungs().size() + 4)
      << "the oracle in both orders and untied, the rungs, and the pipeline";
  for (const auto& [name, stage] : stages) {
    if (stage.step == oracle().step()) {
      EXPECT_EQ(stage.equals, "-") << name;
      continue;
    }
    ASSERT_TRUE(stages.contains(stage.equals)) << name << " must equal " << stage.equals;
    EXPECT_EQ(stages.at(stage.equals).fold(), stage.fold()) << name << " and " << stage.equals;
  }
}

}  // namespace
}  // namespace ladder
