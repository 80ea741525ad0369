#include "common/comm/machines.hpp"

#include <algorithm>
#include <bit>
#include <utility>

namespace ladder {
namespace {

MachineGrid grid_of(const std::vector<int>& machine_of_rank) {
  const int size = static_cast<int>(machine_of_rank.size());
  const auto machine_of = [&](int rank) { return machine_of_rank[static_cast<std::size_t>(rank)]; };
  int width = 1;
  while (machine_of(width) == machine_of(0)) ++width;
  bool is_grid =
      width > 1 && size % width == 0 && std::has_single_bit(static_cast<unsigned>(width));
  for (int rank = width; is_grid && rank < size; ++rank)
    is_grid = rank % width == 0 ? machine_of(rank) > machine_of(rank - 1)
                                : machine_of(rank) == machine_of(rank - 1);
  return is_grid ? MachineGrid{size / width, width} : MachineGrid{1, size};
}

}  // namespace

Machines::Machines(std::vector<int> machine_of_rank) {
  const bool is_one = std::all_of(machine_of_rank.begin(), machine_of_rank.end(),
                                  [&](int machine) { return machine == machine_of_rank[0]; });
  if (is_one) return;
  grid_ = grid_of(machine_of_rank);
  machine_of_rank_ = std::make_shared<const std::vector<int>>(std::move(machine_of_rank));
}

bool Machines::are_apart(int rank, int peer) const {
  return !is_one() && (*machine_of_rank_)[static_cast<std::size_t>(rank)] !=
                          (*machine_of_rank_)[static_cast<std::size_t>(peer)];
}

Machines Machines::of_part(const std::vector<int>& members) const {
  if (is_one()) return {};
  std::vector<int> part;
  for (const int member : members)
    part.push_back((*machine_of_rank_)[static_cast<std::size_t>(member)]);
  return Machines(std::move(part));
}

Machines Machines::without_grid() const {
  Machines direct = *this;
  if (!is_one()) direct.grid_ = {1, static_cast<int>(machine_of_rank_->size())};
  return direct;
}

Machines machines_of(int num_ranks, int ranks_per_machine) {
  if (ranks_per_machine == 0 || ranks_per_machine >= num_ranks) return {};
  std::vector<int> machine_of_rank;
  for (int rank = 0; rank < num_ranks; ++rank) machine_of_rank.push_back(rank / ranks_per_machine);
  return Machines(std::move(machine_of_rank));
}

}  // namespace ladder
