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

// The part of a line in ./ladder run's table that says which run must equal which.
struct ListedRung {
  std::string name, step, ranks, when, equals, within, reads, options;

  // Whether it trains on the same rows as the others. Those with other objectives do not.
  bool is_rung() const { return reads != "-"; }
};

std::map<std::string, ListedRung> launchers_rungs() {
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
    listed[rung.name] = rung;
  }
  return listed;
}

// Each step must equal the previous one; with several microbatches, to the bit if the sums of both
// have the same order.
TEST(LaunchersTable, HasTheSameRungs) {
  using Entry = std::array<std::string, 3>;  // a step, the one that it must equal, within what
  std::vector<Entry> found, wanted = {{oracle().step(), "-", "-"},
                                      {oracle().step(), "-", "-"},  // untied
                                      {pipeline().step(), oracle().step(), "bits"},
                                      {diloco().step(), "-", "-"}};
  const std::map<std::string, ListedRung> listed = launchers_rungs();
  for (const auto& [name, rung] : listed) {
    if (rung.is_rung())
      found.push_back(
          {rung.step, rung.equals == "-" ? "-" : listed.at(rung.equals).step, rung.within});
  }
  const Rung* previous = &oracle();
  for (const Rung& rung : rungs()) {
    const bool has_its_order = rung.sums_each_microbatch == previous->sums_each_microbatch;
    wanted.push_back({rung.step(), previous->step(), has_its_order ? "bits" : "bits,1e-2"});
    previous = &rung;
  }
  EXPECT_THAT(found, ::testing::UnorderedElementsAreArray(wanted));
}

// Each of the other objectives is trained by one rank and by all, with the same options but for the
// cut into stages and replicas.
TEST(LaunchersTable, ComparesObjectivesWithOneRank) {
  int num_compared = 0;
  const std::map<std::string, ListedRung> listed = launchers_rungs();
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
