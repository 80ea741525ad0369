// What a run says about its pipeline: the cut, the batch, the schedule as a picture, its bubble.
#pragma once

#include <string>

#include "common/core/json.hpp"
#include "common/train/options/options.hpp"
#include "step8_pipeline_ga/stage/pipeline_cut.hpp"

namespace ladder {

// What the run does, for its log: the layers of each stage, and what makes up the global batch.
std::string describe_pipeline(const TrainOptions& options, const PipelineCut& cut,
                              int num_replicas);

// The schedule as --show-schedule draws it, for a backward that takes twice as long as a forward:
// as text, or as an SVG file. Throws UsageError if there are too many forwards to draw.
std::string draw_schedule(const TrainOptions& options, int world_size, bool is_svg);

// {"chunks": [[0, 1], [2, 3]], "stages": [["F0.0", "F0.1", …], …]}: the layers of each chunk, and what
// each stage computes in one flush, as kind (F, B, or the halves I and W), chunk and microbatch.
// Null if the pipeline's flushes have no fixed size.
Json schedule_json(const TrainOptions& options, int world_size);

// The idle time of all stages per time that they compute, for such a backward and messages that
// take no time.
double bubble(const TrainOptions& options, int world_size);

}  // namespace ladder
