#include "step8_pipeline_ga/objectives/step_shard.hpp"

#include <cstdint>
#include <span>
#include <vector>

#include "common/core/check.hpp"
#include "step8_pipeline_ga/objectives/objective_options.hpp"
#include "step8_pipeline_ga/pipeline_options.hpp"
#include "step8_pipeline_ga/runner/next_batch.hpp"

namespace ladder {

DataShard step_shard(const TrainOptions& options, const Mesh& mesh) {
  DataShard shard = replica_shard(options, mesh);
  const ObjectiveOptions& objective = options.get<ObjectiveOptions>();
  if (objective.kind != ObjectiveKind::kSelfDistillation) return shard;
  if (objective.distillation.scope == SinkhornScope::kBatch) {
    check_usage(options.data.microbatch_size > 1 || microbatches_per_step(options) > 1 ||
                    mesh.num_replicas() > 1 || options.get<PipelineOptions>().docs_per_step > 0,
                "--sinkhorn-scope batch: a step has one sample, and balanced alone it teaches "
                "nothing; take --micro-batch-size or --num-microbatches 2 or more");
    return shard;
  }
  const auto rows = static_cast<std::size_t>(options.data.microbatch_size);
  shard.select = [rows, of_replica = shard.select](std::span<const std::int64_t> order,
                                                   std::int64_t position) {
    std::vector<std::int64_t> samples = of_replica(order, position);
    check_usage(position > 0 || samples.size() != 1,
                "--sinkhorn-scope microbatch: the data have one sample for each replica, and "
                "balanced alone it teaches nothing; take more data, fewer replicas, or "
                "--sinkhorn-scope batch");
    if (samples.size() % rows == 1) samples.pop_back();
    return samples;
  };
  return shard;
}

}  // namespace ladder
