#include "step8_pipeline_ga/runner/step_objective.hpp"

#include <algorithm>
#include <utility>
#include <vector>

#include "common/comm/communicator.hpp"
#include "common/core/stop_signal.hpp"
#include "common/core/trace.hpp"

namespace ladder {
namespace {

// So many microbatches of a replica are a part. Between two parts its pipeline runs empty, and all
// ranks agree whether to stop.
constexpr std::int64_t kMicrobatchesPerPart = 32;

}  // namespace

double evaluate(PipelineRunner& pipeline, StepObjective& objective, const Microbatches& batches,
                const Mesh& mesh) {
  const Span span("evaluate");
  std::vector<double> sums(static_cast<std::size_t>(batches.size()));
  const std::int64_t per_part = kMicrobatchesPerPart * mesh.num_replicas();
  for (std::int64_t first = 0; first < batches.size(); first += per_part) {
    const double stops = StopSignal::was_raised() ? 1 : 0;
    if (first > 0 && all_reduce_sum(stops, mesh.world) > 0) return kStoppedLoss;
    const std::int64_t end = std::min(first + per_part, batches.size());
    std::vector<Microbatch> own;
    for (std::int64_t i = first + mesh.dp_rank(); i < end; i += mesh.num_replicas())
      own.push_back(batches[i]);
    Microbatches own_batches(std::move(own));
    objective.prepare(own_batches, {.is_validation = true});
    std::int64_t i = first + mesh.dp_rank();
    for (const double own_sum : pipeline.loss_sums(objective, own_batches)) {
      if (mesh.tp_rank() == 0) sums[static_cast<std::size_t>(i)] = own_sum;
      i += mesh.num_replicas();
    }
  }
  all_reduce_sum(sums, mesh.world);  // one rank's value and zeros: no rounding
  double sum = 0;
  for (const double of_microbatch : sums) sum += of_microbatch;
  return sum / objective.count(batches);
}

MetricSums take_sums(MetricSums& own, std::size_t size, const Mesh& mesh) {
  MetricSums sums = std::exchange(own, {});
  sums.resize(size);  // only last stages have scored anything
  all_reduce_sum(sums, mesh);
  return sums;
}

}  // namespace ladder
