#include "step8_pipeline_ga/schedule/planner.hpp"

#include "step8_pipeline_ga/pipeline_options.hpp"

namespace ladder {

Planner planner_of(const TrainOptions& options, int num_stages) {
  return [=, pipeline = options.get<PipelineOptions>()](std::int64_t num_microbatches) {
    return plan_pipeline(pipeline.schedule, num_stages, num_microbatches,
                         pipeline.chunks_per_stage);
  };
}

}  // namespace ladder
