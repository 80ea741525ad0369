#include "step8_pipeline_ga/runner/next_batch.hpp"

#include "common/core/check.hpp"
#include "step8_pipeline_ga/pipeline_options.hpp"

namespace ladder {

DataOptions step_data(const TrainOptions& options) {
  DataOptions data = options.data;
  data.num_microbatches = microbatches_per_step(options);
  data.rows = batch_shape(options).rows;
  return data;
}

DataShard replica_shard(const TrainOptions& options, const Mesh& mesh) {
  return data_shard(mesh.dp_rank(), mesh.num_replicas(), options.data);
}

StepBatch next_batch(BatchStream& batches, const TrainOptions& options, Communicator& replicas) {
  const std::int64_t wanted = options.get<PipelineOptions>().docs_per_step;
  if (wanted == 0) return {batches.next(), {}};
  check_usage(batches.training_data().num_documents() > 0, "--docs-per-step ", wanted,
              " counts documents, but --data ", options.data.source,
              " does not mark where they begin; use a .jsonl file or the built-in corpus");
  check_usage(
      wanted <= batches.training_data().num_documents(), "--docs-per-step ", wanted, ": --data ",
      options.data.source, " has ", batches.training_data().num_documents(),
      " document(s): every step would be a whole epoch; give at most that many, or leave it out");
  std::vector<Microbatch> list;
  double num_documents = 0;
  do {
    list.push_back(batches.next_microbatch());
    num_documents += all_reduce_sum(static_cast<double>(list.back().num_documents), replicas);
  } while (num_documents < static_cast<double>(wanted) && !batches.is_epoch_over());
  const auto num_microbatches = static_cast<double>(list.size());
  return {Microbatches(std::move(list)),
          {{"documents", num_documents}, {"microbatches", num_microbatches}}};
}

std::int64_t flush_size(const TrainOptions& options, const Microbatches& batch) {
  return options.get<PipelineOptions>().docs_per_step > 0 ? batch.size()
                                                          : options.data.num_microbatches;
}

}  // namespace ladder
