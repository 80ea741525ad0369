#include "step8_pipeline_ga/runner/evaluate.hpp"

#include <utility>
#include <vector>

#include "common/comm/communicator.hpp"
#include "common/core/trace.hpp"

namespace ladder {

double evaluate(PipelineRunner& pipeline, const Objective& objective, const Microbatches& batches,
                const Mesh& mesh, const std::function<void(Microbatches& own)>& prepare) {
  const Span span("evaluate");
  std::vector<Microbatch> own;
  for (std::int64_t i = mesh.dp_rank(); i < batches.size(); i += mesh.num_replicas())
    own.push_back(batches[i]);
  Microbatches own_batches(std::move(own));
  if (prepare) prepare(own_batches);
  const std::vector<double> own_sums = pipeline.loss_sums(objective, own_batches);
  std::vector<double> sums(static_cast<std::size_t>(batches.size()));
  for (std::size_t i = 0; i < own_sums.size(); ++i) {
    sums[i * static_cast<std::size_t>(mesh.num_replicas()) +
         static_cast<std::size_t>(mesh.dp_rank())] = own_sums[i];
  }
  all_reduce_sum(sums, mesh.world);  // one rank's value and zeros: no rounding
  double sum = 0;
  for (const double of_microbatch : sums) sum += of_microbatch;
  return sum / objective.count(batches);
}

}  // namespace ladder
