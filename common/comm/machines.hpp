// Which ranks of a group share a machine.
//
// Links inside a machine are much faster than those between machines, and a sum over many ranks
// can spare the slow ones: first inside each machine, then between those ranks of all machines that
// have the same place, which have less to send. Eight ranks on two machines:
//
//              place 0  place 1  place 2  place 3
//   machine 0   rank 0   rank 1   rank 2   rank 3    inside: {0, 1, 2, 3} and {4, 5, 6, 7}
//   machine 1   rank 4   rank 5   rank 6   rank 7    between: {0, 4}, {1, 5}, {2, 6}, {3, 7}
//
// The bits must not depend on where ranks run. So this is done only where it is the tree of all
// ranks (tree_sum.hpp): machines of neighbors, equally many on each, and a power of two of them.
// Elsewhere the grid has one row, and every rank sends to all others.
#pragma once

#include <memory>
#include <vector>

namespace ladder {

// The ranks of a group by machine and by place on it.
struct MachineGrid {
  int num_machines = 1;
  int per_machine = 1;

  int machine_of(int rank) const { return rank / per_machine; }
  int place_of(int rank) const { return rank % per_machine; }
  int rank_of(int machine, int place) const { return machine * per_machine + place; }
};

class Machines {
 public:
  Machines() = default;  // one, for all ranks
  // The machine of each rank. Machines are numbered in the order of their first ranks.
  explicit Machines(std::vector<int> machine_of_rank);

  bool is_one() const { return machine_of_rank_ == nullptr; }
  bool are_apart(int rank, int peer) const;  // on two machines
  // Those of a group's part, by the ranks that belong to it.
  Machines of_part(const std::vector<int>& members) const;
  // The same, but every rank sends to all others.
  Machines without_grid() const;
  // In which a group of `size` ranks, which is this one, adds up.
  MachineGrid grid(int size) const { return is_one() ? MachineGrid{1, size} : grid_; }

 private:
  std::shared_ptr<const std::vector<int>> machine_of_rank_;  // null: all on one
  MachineGrid grid_;
};

// Machines that are filled with ranks one after the other, so many on each but the last; 0: one
// machine for all.
Machines machines_of(int num_ranks, int ranks_per_machine);

}  // namespace ladder
