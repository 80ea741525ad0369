#include "step5_zero1/shard_options.hpp"

#include "common/core/amounts.hpp"
#include "common/core/check.hpp"
#include "common/train/options/option_table.hpp"

namespace ladder {

void ShardOptions::declare(OptionTable& table) {
  table.heading("Sharding");
  table.number("--shard-ranks", num_ranks, {0, kMostRanks},
               "neighboring ranks over which a copy of the state is cut; ranks / these copies sum "
               "their gradients; 0: all ranks, one copy");
}

int shard_ranks_of(const TrainOptions& options, int world_size) {
  const int given = options.get<ShardOptions>().num_ranks;
  const int num_ranks = given > 0 ? given : world_size;
  check_usage(world_size % num_ranks == 0, "--shard-ranks is ", num_ranks,
              ", which does not divide ", count_of(world_size, "rank"),
              ": each copy of the state needs as many ranks; start a multiple of ", num_ranks,
              " ranks, or choose a divisor of ", world_size);
  return num_ranks;
}

std::string describe_copies(const TrainOptions& options, int world_size) {
  constexpr int kMostShown = 4;
  const int num_ranks = shard_ranks_of(options, world_size), num_copies = world_size / num_ranks;
  if (num_copies == 1) return "";
  const auto ranks_of = [=](int copy) {
    const int first = copy * num_ranks, last = first + num_ranks - 1;
    return num_ranks == 1 ? concat(first) : concat(first, num_ranks == 2 ? " and " : " to ", last);
  };
  std::string text = concat(
      "sharding            ", num_copies, " copies, ",
      num_ranks == 1 ? "each whole, on ranks " : concat("each cut over ", num_ranks, " ranks: "));
  const int num_shown = num_copies <= kMostShown ? num_copies : kMostShown - 1;
  for (int copy = 0; copy < num_shown; ++copy) text += concat(copy > 0 ? ", " : "", ranks_of(copy));
  if (num_shown < num_copies) text += concat(" … ", ranks_of(num_copies - 1));
  return text + "\n";
}

Tries tries_of_cuts(const TrainOptions& options, int world_size) {
  constexpr int kUsual = 8;
  const int num_ranks = options.ranks_per_machine > 0 ? options.ranks_per_machine : kUsual;
  Tries tries = as_it_is(options, world_size);
  if (!options.given.contains("shard-ranks") && world_size > num_ranks &&
      world_size % num_ranks == 0)
    tries.push_back(
        {concat("copies on ", num_ranks, " ranks"), concat("--shard-ranks ", num_ranks)});
  return tries;
}

}  // namespace ladder
