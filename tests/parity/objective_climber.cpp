#include "tests/parity/objective_climber.hpp"

#include <fstream>

#include "common/core/check.hpp"
#include "step8_pipeline_ga/objectives/objective_options.hpp"
#include "step8_pipeline_ga/pipeline_options.hpp"

namespace ladder {

ObjectiveCase lm_by_documents() {
  return {.name = "lm up to 9 documents", .docs_per_step = 9};
}

ObjectiveCase dpo() {
  return {.name = "dpo", .objective = {.kind = ObjectiveKind::kDpo}, .has_reference = true};
}

ObjectiveCase dpo_by_pairs() {
  ObjectiveCase which = dpo();
  which.name = "dpo over tokens, up to 9 pairs";
  which.objective.dpo = {.label_smoothing = 0.1, .mean_over = DpoMeanOver::kTokens};
  which.docs_per_step = 9;
  return which;
}

ObjectiveCase dpo_from_cache() {
  ObjectiveCase which = dpo();
  which.name = "dpo from a cache";
  which.has_cache = true;
  return which;
}

ObjectiveCase self_distillation(SinkhornScope scope) {
  return {.name = concat("self_distillation over the ",
                         scope == SinkhornScope::kBatch ? "batch" : "microbatch"),
          .objective = {.kind = ObjectiveKind::kSelfDistillation,
                        .distillation = {.prototypes = 5, .scope = scope}}};
}

std::vector<ObjectiveCase> all_objectives() {
  return {lm_by_documents(),
          dpo(),
          dpo_by_pairs(),
          dpo_from_cache(),
          self_distillation(SinkhornScope::kMicrobatch),
          self_distillation(SinkhornScope::kBatch)};
}

TrainOptions ObjectiveClimber::options(const ObjectiveCase& which, int num_stages,
                                       std::int64_t num_microbatches) {
  TrainOptions options =
      climber_.options({.num_microbatches = num_microbatches,
                        .tie_embeddings = false,
                        .clip_norm = 0.5,
                        .rows = which.has_reference ? Rows::kWindows : Rows::kDocuments,
                        .has_small_buckets = true});
  options.num_steps = 6;
  options.model.layers = 4;
  options.data.source = options.data.validation_source = samples_for(which, 37);
  options.set<PipelineOptions>().num_stages = num_stages;
  options.set<ObjectiveOptions>() = which.objective;
  if (which.docs_per_step > 0) {
    options.set<PipelineOptions>().docs_per_step = which.docs_per_step;
    options.data.num_microbatches = 1;
  }
  if (which.has_reference) {
    options.set<ObjectiveOptions>().dpo.reference = options.output.init_from = reference();
  }
  if (which.has_cache) options.set<ObjectiveOptions>().dpo.cache = climber_.folder_for("cache");
  return options;
}

std::string ObjectiveClimber::pairs(int count, int first) {
  std::string lines;
  for (int i = first; i < first + count; ++i) {
    const auto length = static_cast<std::size_t>(i % 13);
    lines += concat(R"({"prompt": "sort )", i * i, R"(", "chosen": ")", std::string(length, 'a'),
                    R"(b", "rejected": ")", std::string(static_cast<std::size_t>(i * 7 % 18), 'b'),
                    "a\"}\n");
  }
  return write("pairs", lines);
}

std::string ObjectiveClimber::documents(int count) {
  std::string lines;
  for (int i = 0; i < count; ++i) {
    lines += concat(R"({"question": ")", std::string(static_cast<std::size_t>(i % 29), 'x'),
                    R"(", "answer": ")", i * i, "\"}\n");
  }
  return write("documents", lines);
}

std::string ObjectiveClimber::write(const std::string& name, const std::string& lines) {
  const std::string path = climber_.folder_for(name) + ".jsonl";
  if (climber_.rank() == 0) std::ofstream(path) << lines;
  climber_.wait_for_all();
  return path;
}

const std::string& ObjectiveClimber::reference() {
  if (!reference_.empty()) return reference_;
  TrainOptions options = climber_.options({.num_microbatches = 4, .tie_embeddings = false});
  options.model.layers = 4;
  options.num_steps = 3;
  options.set<PipelineOptions>().num_stages = climber_.size();
  reference_ = climb(options).folder;
  climber_.wait_for_all();
  return reference_;
}

}  // namespace ladder
