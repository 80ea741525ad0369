// scripts/ladder_rungs.tsv, which ./ladder run follows, must agree with tests/parity/rungs.
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <map>
#include <sstream>
#include <string>
#include <utility>

#include "tests/parity/rungs.hpp"

namespace ladder {
namespace {

// The part of a line in ./ladder run's table that says which run must equal which.
struct ListedRung {
  std::string name, step, ranks, when, equals, within, reads, options;

  // Whether it trains on the same rows as the others. Those with other objectives do not.
  bool is_rung() const { return reads != "-"; }
  // Whether it is where other rungs start, or trains otherwise than all of them.
  bool is_alone() const { return step == oracle().step() || step == diloco().step(); }

  Fold fold() const {
    if (step != oracle().step()) return rung_of(step).fold;
    return options.find("--fold ranks-first") != std::string::npos ? Fold::kRanksFirst
                                                                   : Fold::kMicrobatchesFirst;
  }
};

// The rungs of a run with this many microbatches, each of which `equals` at most one.
std::map<std::string, ListedRung> launchers_rungs(int num_microbatches) {
  std::ifstream file(LADDER_SOURCE "/scripts/ladder_rungs.tsv");
  std::map<std::string, ListedRung> listed;
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with("#")) continue;
    std::istringstream fields(line);
    ListedRung rung;
    for (std::string* field : {&rung.name, &rung.step, &rung.ranks, &rung.when, &rung.equals,
                               &rung.within, &rung.reads, &rung.options}) {
      std::getline(fields, *field, '\t');
    }
    if (rung.when == "m>1" && num_microbatches == 1) continue;
    std::istringstream names(rung.equals);
    while (std::getline(names, rung.equals, ',') && rung.equals != "-") {
      if (listed.contains(rung.equals)) break;
    }
    listed[rung.name] = rung;
  }
  return listed;
}

// With one microbatch each step must equal the previous one.
TEST(LaunchersTable, HasTheSameRungs) {
  std::map<std::string, std::string> equals, wanted = {{oracle().step(), "-"}};
  const std::map<std::string, ListedRung> listed = launchers_rungs(1);
  for (const auto& [name, rung] : listed) {
    if (!rung.is_rung()) continue;
    EXPECT_TRUE(rung.within == "bits" || rung.equals == "-") << name;
    equals[rung.step] = rung.equals == "-" ? "-" : listed.at(rung.equals).step;
  }
  const Rung* previous = &oracle();
  for (const Rung& rung : rungs()) wanted[rung.step()] = std::exchange(previous, &rung)->step();
  wanted[pipeline().step()] = oracle().step();
  wanted[diloco().step()] = "-";
  EXPECT_EQ(equals, wanted);
}

// With several microbatches bits are equal only if the sums have the same order.
TEST(LaunchersTable, ComparesEqualOrdersOfSums) {
  const std::map<std::string, ListedRung> listed = launchers_rungs(2);
  const auto num_rungs =
      std::ranges::count_if(listed, [](const auto& entry) { return entry.second.is_rung(); });
  EXPECT_EQ(static_cast<std::size_t>(num_rungs), rungs().size() + 5)
      << "the oracle in both orders and untied, the rungs, the pipeline, and DiLoCo";
  for (const auto& [name, rung] : listed) {
    if (!rung.is_rung()) continue;
    if (rung.is_alone()) {
      EXPECT_EQ(rung.equals, "-") << name;
      continue;
    }
    ASSERT_TRUE(listed.contains(rung.equals)) << name << " must equal " << rung.equals;
    EXPECT_EQ(listed.at(rung.equals).fold(), rung.fold()) << name << " and " << rung.equals;
  }
}

// Each of the other objectives is trained by one rank and by all, with the same options but for the
// cut into stages and replicas.
TEST(LaunchersTable, ComparesObjectivesWithOneRank) {
  int num_compared = 0;
  const std::map<std::string, ListedRung> listed = launchers_rungs(1);
  for (const auto& [name, rung] : listed) {
    if (rung.is_rung() || rung.equals == "-") continue;
    const ListedRung& one_rank = listed.at(rung.equals);
    EXPECT_EQ(one_rank.ranks + " " + rung.ranks, "1 N") << name;
    const std::string one = "--pipeline-stages 1 --num-microbatches P --accumulation R ";
    const std::string all = "--pipeline-stages P --num-microbatches P ";
    EXPECT_EQ(one_rank.options.substr(0, one.size()), one) << name;
    EXPECT_EQ(rung.options.substr(0, all.size()), all) << name;
    EXPECT_EQ(one_rank.options.substr(one.size()), rung.options.substr(all.size())) << name;
    ++num_compared;
  }
  EXPECT_EQ(num_compared, 2) << "dpo and self_distillation";
}

}  // namespace
}  // namespace ladder
