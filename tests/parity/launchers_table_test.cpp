// scripts/ladder_stages.tsv, which ./ladder run follows, must agree with tests/parity/rungs.
#include <gtest/gtest.h>

#include <algorithm>
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

  // Whether it trains on the same rows as the others. Those with other objectives do not.
  bool is_rung() const { return reads != "-"; }
  // Whether it is where other stages start, or trains otherwise than all of them.
  bool is_alone() const { return step == oracle().step() || step == diloco().step(); }

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
    if (!stage.is_rung()) continue;
    EXPECT_TRUE(stage.within == "bits" || stage.equals == "-") << name;
    equals[stage.step] = stage.equals == "-" ? "-" : stages.at(stage.equals).step;
  }
  for (const Rung& rung : rungs()) wanted[rung.step()] = rung.equals.front();
  wanted[pipeline().step()] = pipeline().equals.front();
  wanted[diloco().step()] = "-";
  EXPECT_EQ(equals, wanted);
}

// With several microbatches bits are equal only if the sums have the same order.
TEST(LaunchersTable, ComparesEqualOrdersOfSums) {
  const std::map<std::string, Stage> stages = launchers_stages(2);
  const auto num_rungs =
      std::ranges::count_if(stages, [](const auto& entry) { return entry.second.is_rung(); });
  EXPECT_EQ(static_cast<std::size_t>(num_rungs), rungs().size() + 5)
      << "the oracle in both orders and untied, the rungs, the pipeline, and DiLoCo";
  for (const auto& [name, stage] : stages) {
    if (!stage.is_rung()) continue;
    if (stage.is_alone()) {
      EXPECT_EQ(stage.equals, "-") << name;
      continue;
    }
    ASSERT_TRUE(stages.contains(stage.equals)) << name << " must equal " << stage.equals;
    EXPECT_EQ(stages.at(stage.equals).fold(), stage.fold()) << name << " and " << stage.equals;
  }
}

// Each of the other objectives is trained by one rank and by all, with the same options but for the
// cut into stages and replicas.
TEST(LaunchersTable, ComparesObjectivesWithOneRank) {
  int num_compared = 0;
  const std::map<std::string, Stage> stages = launchers_stages(1);
  for (const auto& [name, stage] : stages) {
    if (stage.is_rung() || stage.equals == "-") continue;
    const Stage& one_rank = stages.at(stage.equals);
    EXPECT_EQ(one_rank.ranks + " " + stage.ranks, "1 N") << name;
    const std::string one = "--pipeline-stages 1 --num-microbatches P --accumulation R ";
    const std::string all = "--pipeline-stages P --num-microbatches P ";
    EXPECT_EQ(one_rank.options.substr(0, one.size()), one) << name;
    EXPECT_EQ(stage.options.substr(0, all.size()), all) << name;
    EXPECT_EQ(one_rank.options.substr(one.size()), stage.options.substr(all.size())) << name;
    ++num_compared;
  }
  EXPECT_EQ(num_compared, 2) << "dpo and self_distillation";
}

}  // namespace
}  // namespace ladder
