#include "step8_pipeline_ga/tensor_parallel/tensor_options.hpp"

#include <bit>

#include "common/train/options/option_table.hpp"
#include "step8_pipeline_ga/pipeline_options.hpp"

namespace ladder {

void TensorOptions::declare(OptionTable& table) {
  table.heading("Tensor parallelism");
  table
      .number("--tensor-ranks", num_ranks, {1, kMostRanks},
              "ranks that share each layer's heads, channels and tokens; 1: layers are whole")
      .changes_no_bits();
  table
      .flag("--sequence-parallel", is_sequence_parallel,
            "between attention and MLP, each of them keeps and norms its own tokens only")
      .changes_no_bits();
}

// A part is never cut: that would be another sum. And each rank adds up its own parts first, which
// is the tree over all of them only if they are a power of two (tree_sum.hpp).
void TensorOptions::finalize(TrainOptions& options) {
  std::int64_t& parts = options.model.product_parts;
  if (!options.given.contains("product-parts") && num_ranks > 1) {
    parts = num_ranks;
    options.derived.insert("product-parts");
  }
  check_usage(parts % num_ranks == 0, "--product-parts ", parts,
              " are not as many for each of --tensor-ranks ", num_ranks,
              "; give a multiple, or leave it out for one part each");
  const auto each = static_cast<std::uint64_t>(parts / num_ranks);
  check_usage(num_ranks == 1 || std::has_single_bit(each), "--product-parts ", parts,
              " on --tensor-ranks ", num_ranks, " are ", each,
              " for each, which is no power of two, so their sum would depend on the number of "
              "ranks; give ",
              num_ranks, ", or ", 2 * num_ranks);
  check_usage(!is_sequence_parallel || num_ranks > 1,
              "--sequence-parallel divides tokens among --tensor-ranks, of which there is only 1");
  check_usage(!is_sequence_parallel || options.model.context % parts == 0,
              "--sequence-parallel: ", parts, " parts do not divide --context ",
              options.model.context,
              ", so some would have a token more than others; give a multiple");
}

void TensorOptions::shape_batch(BatchShape& batch) const {
  batch.ranks_per_replica *= num_ranks;
}

MeshShape tensor_mesh_of(const TrainOptions& options, int world_size) {
  const int num_tensor_ranks = options.get<TensorOptions>().num_ranks;
  check_usage(world_size % num_tensor_ranks == 0, "--tensor-ranks is ", num_tensor_ranks,
              ", which does not divide ", world_size, " rank(s): start a multiple with --ranks");
  const int num_stages = num_stages_of(options, world_size / num_tensor_ranks);
  MeshShape mesh = mesh_shape(world_size, num_stages, num_tensor_ranks);
  mesh.cuts_rows = options.get<TensorOptions>().is_sequence_parallel;
  return mesh;
}

}  // namespace ladder
