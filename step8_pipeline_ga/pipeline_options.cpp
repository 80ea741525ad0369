#include "step8_pipeline_ga/pipeline_options.hpp"

#include <algorithm>

#include "common/train/options/option_table.hpp"

namespace ladder {

void PipelineOptions::declare(OptionTable& table) {
  table.heading("Pipeline");
  table.number(
      "--pipeline-stages", num_stages, {0, kMostRanks},
      "stages into which the model is cut; ranks / stages replicas; 0: one stage per rank");
  table
      .choice("--pipeline-schedule", schedule,
              {{"gpipe", Schedule::kGpipe},
               {"1f1b", Schedule::k1f1b},
               {"interleaved", Schedule::kInterleaved},
               {"zero-bubble", Schedule::kZeroBubble}},
              "order of forwards and backwards")
      .changes_no_bits();
  table
      .number("--chunks-per-stage", chunks_per_stage, {1, kMostRanks},
              "pieces of the model on each stage; interleaved needs 2 or more")
      .changes_no_bits();
  table.number("--accumulation", accumulation, kRows,
               "runs of the pipeline (flushes) per optimizer step, --num-microbatches in each");
  table.number("--local-batch-size", local_batch_size, {0, kMostRows},
               "rows per flush and replica, instead of --num-microbatches; a multiple of "
               "--micro-batch-size");
  table.number("--docs-per-step", docs_per_step, {0, kMostRows},
               "fetch microbatches until all replicas together have this many documents: one "
               "optimizer step; 0: off");
}

namespace {

// --num-microbatches was given: no other option may decide how many microbatches a step has.
void refuse_a_second_count(const PipelineOptions& own, const TrainOptions& options) {
  const auto refuse = [&](const char* option, std::int64_t value, const char* why) {
    check_usage(value <= 0, option, " ", value, " and --num-microbatches ",
                options.data.num_microbatches, " ", why, ": give only one of them");
  };
  refuse("--local-batch-size", own.local_batch_size, "say the same");
  refuse("--docs-per-step", own.docs_per_step, "both say how many microbatches a step has");
}

}  // namespace

void PipelineOptions::finalize(TrainOptions& options) {
  if (options.given.contains("num-microbatches")) refuse_a_second_count(*this, options);
  check_usage(local_batch_size == 0 || options.data.step_microbatches == 0, "--local-batch-size ",
              local_batch_size, " and --microbatches-per-step ", options.data.step_microbatches,
              " both say how many microbatches a step has: give only one of them");
  const std::int64_t rows = options.data.microbatch_size, local = local_batch_size;
  const bool has_docs = docs_per_step > 0;
  check_usage(!has_docs || options.gradient_sum == SumMode::kOrdered,
              "--gradient-sum exact does not go with --docs-per-step: a step must know how many "
              "summands it has");
  const auto values = [&] {
    const std::string batch = local != 0
                                  ? concat("--local-batch-size ", local)
                                  : concat("--num-microbatches ", options.data.num_microbatches);
    return concat("--micro-batch-size ", rows, ", ", batch, ", --pipeline-stages ", num_stages);
  };
  if (local > 0) {
    check_usage(local % rows == 0, values, ": ", local, " rows do not divide into microbatches of ",
                rows);
    options.data.num_microbatches = local / rows;
  }
  check_usage(options.data.num_microbatches >= std::max(1, num_stages) || has_docs, values,
              ": a flush needs at least as many microbatches as there are stages, here it has ",
              options.data.num_microbatches);
  check_usage(
      !has_docs || (local == 0 && accumulation == 1), "--docs-per-step ", docs_per_step,
      " decides how many microbatches a step has, all in one flush; leave out ",
      local > 0 ? concat("--local-batch-size ", local) : concat("--accumulation ", accumulation));
  if (has_docs) options.data.num_microbatches = 1;  // those that are fetched at a time
  if (local > 0 || has_docs) options.derived.insert("num-microbatches");
  check_usage(!has_docs || !options.data.overfit_one_batch, "--docs-per-step ", docs_per_step,
              " reads on until it has enough documents, --overfit-one-batch reads the same rows "
              "again; give only one of them");
  const bool is_interleaved = schedule == Schedule::kInterleaved;
  check_usage((chunks_per_stage > 1) == is_interleaved, "--chunks-per-stage is ", chunks_per_stage,
              is_interleaved
                  ? ", but --pipeline-schedule interleaved needs 2 or more"
                  : ", but only --pipeline-schedule interleaved takes another number than 1");
}

void PipelineOptions::shape_batch(BatchShape& batch) const {
  batch.flushes_per_step = accumulation;
  batch.ranks_per_replica = num_stages;
  if (accumulation > 1) batch.multiplied += concat(", --accumulation ", accumulation);
  batch.has_fixed_size = docs_per_step == 0;
}

int num_stages_of(const TrainOptions& options, int world_size) {
  const auto& pipeline = options.get<PipelineOptions>();
  const int num_stages = pipeline.num_stages > 0 ? pipeline.num_stages : world_size;
  check_usage(world_size % num_stages == 0, "--pipeline-stages is ", num_stages,
              ", which does not divide ", world_size,
              " rank(s): every replica needs one rank per stage");
  check_usage(num_stages > 1 || pipeline.schedule != Schedule::kInterleaved,
              "--pipeline-schedule is interleaved, but a single stage has nothing to interleave: "
              "use another schedule, or more stages (--ranks, --pipeline-stages)");
  check_usage(options.data.num_microbatches >= num_stages || pipeline.docs_per_step > 0,
              "--micro-batch-size ", options.data.microbatch_size, ", --num-microbatches ",
              options.data.num_microbatches, ", ", num_stages,
              " stages: a flush needs at least as many microbatches as stages");
  return num_stages;
}

}  // namespace ladder
