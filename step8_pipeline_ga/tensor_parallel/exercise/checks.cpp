// Judges the six files of tensor parallelism, each by itself: f and g, the pieces of weights, the
// parts that a rank has, the cross-entropy of a vocabulary in parts, and the rows in between. Then
// the trainer shows that they train.
#include <algorithm>
#include <string>
#include <vector>

#include "common/core/memory_ledger.hpp"
#include "common/testing/draw.hpp"
#include "common/testing/judge_main.hpp"
#include "step0_single_gpu/judge/judge.hpp"
#include "step8_pipeline_ga/tensor_parallel/exercise/cross_entropy_checks.hpp"
#include "step8_pipeline_ga/tensor_parallel/exercise/cut_checks.hpp"
#include "step8_pipeline_ga/tensor_parallel/exercise/f_and_g_checks.hpp"
#include "step8_pipeline_ga/tensor_parallel/exercise/rank_checks.hpp"
#include "step8_pipeline_ga/tensor_parallel/exercise/row_checks.hpp"
#include "step8_pipeline_ga/tensor_parallel/train.hpp"

namespace ladder {
namespace tensor_parallel {
namespace {

std::vector<std::string> faults_of_f_and_g(Communicator& comm) {
  FAndGChecks fixed(comm, 4, 3);
  fixed.judge("");
  if (!fixed.faults().empty()) return fixed.faults();
  Draw draw(comm);
  const std::int64_t rows = draw.number(5, 40), channels = draw.number(1, 30);
  FAndGChecks drawn(comm, rows, channels);
  drawn.judge(draw.announce(concat("[", rows, ", ", channels, "]")) + ": ");
  return drawn.faults();
}

std::vector<std::string> faults_of_cuts(Communicator& comm) {
  CutChecks checks(comm);
  checks.cuts({.heads = 8});
  checks.cuts({.heads = 10, .total = 4});
  checks.cuts({.heads = 4, .grain = 3});
  checks.cuts({.heads = 3, .grain = 4});  // one head and two
  checks.cuts({.heads = 4, .grain = 2, .num_matrices = 3});
  checks.cuts({.heads = 4, .grain = 2, .num_matrices = 3, .others = 0, .total = 4});
  checks.cuts({.heads = 8, .others = 0});
  checks.cuts({.is_by_columns = false, .heads = 4, .grain = 2});
  checks.cuts({.is_by_columns = false, .heads = 3, .grain = 4});
  checks.cuts({.is_by_columns = false, .heads = 13, .others = 5, .total = 4});
  Draw draw(comm);
  CutWeight weight = {.is_by_columns = draw.coin(),
                      .heads = draw.number(5, 12),
                      .grain = draw.number(1, 7),
                      .others = draw.number(2, 9),
                      .total = static_cast<int>(draw.number(2, 5))};
  if (weight.is_by_columns) weight.num_matrices = draw.number(1, 3);
  checks.cuts(weight, draw.announce(weight.name()));
  ModelOptions options = {.vocab_size = 61,  // divides into one part only
                          .context = 9,
                          .layers = 2,
                          .heads = 8,
                          .channels = 48,
                          .mlp_channels = 50};
  for (const ModelFamily family : all_families()) {
    if (traits_of(family).qk_norm() == QkNorm::kOfAllHeads) continue;  // which no part has
    options.family = family;
    options.kv_heads = family == ModelFamily::kLlama ? 4 : 0;
    for (const std::int64_t parts : {2, 4}) {
      options.tie_embeddings = parts == 2;
      options.product_parts = parts;
      checks.models_are_whole(options, traits_of(family).name());
    }
  }
  return checks.faults();
}

std::vector<std::string> faults_of_ranks(Communicator& comm) {
  RankChecks checks(comm);
  checks.every_mesh_has_its_parts();
  return checks.faults();
}

std::vector<std::string> faults_of_cross_entropy(Communicator& comm) {
  CrossEntropyChecks fixed(comm, 10);
  fixed.judge("");
  if (!fixed.faults().empty()) return fixed.faults();
  Draw draw(comm);
  const std::int64_t vocab_size = draw.number(11, 40);
  CrossEntropyChecks drawn(comm, vocab_size);
  drawn.judge(draw.announce(concat("a vocabulary of ", vocab_size)) + ": ");
  return drawn.faults();
}

// All ranks share the layers; of four, in two trainings of three only two of them, and there are two
// stages, or two replicas. Each rank has one part, or two. GPT-2 and Llama. In every other pair of
// trainings, rows are cut as well.
void vary(TrainOptions& options, int number, int num_ranks) {
  if (number == std::ssize(cases())) number += static_cast<int>(options.seed % 30);  // drawn
  const int way = num_ranks == 4 ? number % 3 : 0;
  const int num_tensor_ranks = way == 0 ? num_ranks : 2, num_stages = way == 1 ? 2 : 1;
  ModelOptions& model = options.model;
  model.product_parts = std::max(2, num_tensor_ranks) * (1 + number % 2);
  model.heads = std::max(4, 2 * num_ranks);
  model.channels = model.heads * 4 * (1 + model.channels % 3);
  model.family = number % 5 == 1 || number % 5 == 2 ? ModelFamily::kLlama : ModelFamily::kGpt2;
  if (model.family == ModelFamily::kLlama && number % 2 == 0)
    model.kv_heads = model.heads, model.heads *= 2;  // grouped queries
  if (number % 5 == 4) model.mlp_channels = 50;
  model.layers = std::max<std::int64_t>(model.layers, num_stages);
  if (num_stages > 1) model.tie_embeddings = false;  // whose gradient is summed in another order
  options.data.num_microbatches = std::max<std::int64_t>(options.data.num_microbatches, num_stages);
  options.set<PipelineOptions>().num_stages = num_stages;
  options.set<TensorOptions>().num_ranks = num_tensor_ranks;
  options.given.insert("product-parts");
  if (num_tensor_ranks == 1 || number % 4 < 2) return;
  options.set<TensorOptions>().is_sequence_parallel = true;
  model.context = model.product_parts * (1 + model.context / model.product_parts);  // a multiple
}

std::vector<std::string> faults_of_rows(Communicator& comm) {
  RowChecks fixed(comm, 5, 3, 4);
  fixed.judge("");
  if (!fixed.faults().empty()) return fixed.faults();
  Draw draw(comm);
  const std::int64_t B = draw.number(1, 6), T = draw.number(6, 11), C = draw.number(1, 9);
  RowChecks drawn(comm, B, T, C);
  drawn.judge(draw.announce(concat("[", B, ", ", T, ", ", C, "] on each rank")) + ": ");
  if (!drawn.faults().empty()) return drawn.faults();
  Judge judge(
      {.trainer = trainer(),
       .vary = [&](TrainOptions& options, int number) { vary(options, number, comm.size()); },
       .is_in_step_0 = true},
      comm);
  judge.all_cases_are_right();
  return judge.faults();
}

}  // namespace
}  // namespace tensor_parallel

std::vector<std::string> judge_linked(Communicator& comm) {
  install_memory_ledger();
  using namespace tensor_parallel;  // NOLINT(*-using-namespace)
  return faults_in_levels({{"f and g", [&] { return faults_of_f_and_g(comm); }},
                           {"columns and rows", [&] { return faults_of_cuts(comm); }},
                           {"parts on ranks", [&] { return faults_of_ranks(comm); }},
                           {"cross-entropy", [&] { return faults_of_cross_entropy(comm); }},
                           {"rows and trainings", [&] { return faults_of_rows(comm); }}});
}

}  // namespace ladder
