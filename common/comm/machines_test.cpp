#include "common/comm/machines.hpp"

#include <gtest/gtest.h>

namespace ladder {
namespace {

using Grid = std::pair<int, int>;  // machines, ranks on each

Grid grid_of(const std::vector<int>& machine_of_rank) {
  const MachineGrid grid = Machines(machine_of_rank).grid(static_cast<int>(machine_of_rank.size()));
  return {grid.num_machines, grid.per_machine};
}

TEST(Machines, FormAGridIfSumsKeepTheirBits) {
  EXPECT_EQ(grid_of({0, 0, 1, 1}), Grid(2, 2));
  EXPECT_EQ(grid_of({0, 0, 2, 2, 5, 5}), Grid(3, 2)) << "any number of machines";
  EXPECT_EQ(grid_of({0, 0, 0, 0, 1, 1, 1, 1}), Grid(2, 4));
  EXPECT_EQ(grid_of({0, 0, 0}), Grid(1, 3)) << "one machine";
  EXPECT_EQ(grid_of({0, 0, 0, 1, 1, 1}), Grid(1, 6)) << "three is no power of two";
  EXPECT_EQ(grid_of({0, 0, 1, 1, 2}), Grid(1, 5)) << "the last has fewer";
  EXPECT_EQ(grid_of({0, 0, 1, 1, 1}), Grid(1, 5)) << "the last has more";
  EXPECT_EQ(grid_of({0, 1, 0, 1}), Grid(1, 4)) << "not neighbors";
  EXPECT_EQ(grid_of({0, 0, 1, 1, 0, 0}), Grid(1, 6)) << "the first comes again";
  EXPECT_EQ(grid_of({0, 1, 2}), Grid(1, 3)) << "one on each";
  EXPECT_EQ(grid_of({0}), Grid(1, 1));
}

TEST(Machines, KnowWhoIsApartInAPart) {
  const Machines machines = machines_of(8, 4);
  EXPECT_FALSE(machines.are_apart(0, 3));
  EXPECT_TRUE(machines.are_apart(3, 4));
  const Machines part = machines.of_part({1, 2, 5, 6});
  EXPECT_FALSE(part.are_apart(0, 1));
  EXPECT_TRUE(part.are_apart(1, 2));
  EXPECT_EQ(part.grid(4).num_machines, 2);
  EXPECT_TRUE(machines.of_part({4, 7}).is_one());
  EXPECT_FALSE(machines.without_grid().is_one());
  EXPECT_EQ(machines.without_grid().grid(8).num_machines, 1);
  for (const int all : {0, 8, 9}) EXPECT_TRUE(machines_of(8, all).is_one()) << all;
}

}  // namespace
}  // namespace ladder
