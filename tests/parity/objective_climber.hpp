// Runs step 8's chapter with each of its objectives.
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "step8_pipeline_ga/objectives/objective_options.hpp"
#include "step8_pipeline_ga/pipeline_options.hpp"
#include "tests/parity/climber.hpp"

namespace ladder {

// An objective and what its runs need.
struct ObjectiveCase {
  std::string name;
  ObjectiveOptions objective = {};
  std::int64_t docs_per_step = 0;
  bool has_reference = false;
  bool has_cache = false;
};

ObjectiveCase lm_by_documents();  // up to 9 documents per step
ObjectiveCase dpo();
ObjectiveCase dpo_by_pairs();  // over tokens, up to 9 pairs per step
ObjectiveCase dpo_from_cache();
ObjectiveCase self_distillation(SinkhornScope scope);
std::vector<ObjectiveCase> all_objectives();

// A fixture. Collective: every rank calls the same functions in the same order.
class ObjectiveClimber : public ::testing::Test {
 protected:
  void TearDown() override { climber_.wait_for_all(); }  // then rank 0 removes the files

  // Six steps of four blocks on so many stages. Their 37 samples last for at most five: a step
  // takes eight per replica, or 9 documents, and the last one of an epoch takes fewer.
  TrainOptions options(const ObjectiveCase& which, int num_stages,
                       std::int64_t num_microbatches = 4);
  // The first of them, on all ranks as stages.
  TrainOptions one_step(const ObjectiveCase& which) {
    TrainOptions first = options(which, climber_.size());
    first.num_steps = 1;
    return first;
  }
  FinishedRun climb(const TrainOptions& options) {
    return climber_.climb(pipeline_with_objectives(), options);
  }

  // New files with `count` samples of different lengths, some too long for a row.
  std::string pairs(int count, int first = 0);
  std::string documents(int count);
  std::string samples_for(const ObjectiveCase& which, int count) {
    return which.has_reference ? pairs(count) : documents(count);
  }
  // A model that has learned something else for three steps: one for each test.
  const std::string& reference();

  Climber climber_;

 private:
  std::string write(const std::string& name, const std::string& lines);

  std::string reference_;
};

}  // namespace ladder
