#include "step8_pipeline_ga/stage/stage_state.hpp"

#include <gtest/gtest.h>

#include <algorithm>

#include "common/core/memory_ledger.hpp"
#include "common/testing/rank_test.hpp"
#include "common/testing/temp_folder.hpp"
#include "common/train/build_model.hpp"
#include "common/train/start.hpp"

namespace ladder {
namespace {

// A stage with its optimizer, as train() has it.
struct SavedStage {
  explicit SavedStage(const TrainOptions& options, const Mesh& on_mesh)
      : mesh(on_mesh),
        plan(plan_stage(options, mesh.num_stages(), mesh.pp_rank())),
        flat(plan.layout),
        model(build_model(options, plan.cut.layers_of(plan.stage), plan.parts, flat)),
        grads(flat),
        optimizer(flat, grads, options.optimizer),
        batches(options.data, whole_data(Tail::kDrop)) {}
  TrainState state() { return stage_state(plan, flat, optimizer, batches, mesh); }

  Mesh mesh;
  StagePlan plan;
  FlatModel flat;
  Model model;
  FlatGradients grads;
  Optimizer optimizer;
  BatchStream batches;
};

TrainOptions options_of(const TempFolder& folder, bool is_tied) {
  TrainOptions options;
  options.model = {
      .context = 8, .layers = 4, .heads = 2, .channels = 20, .tie_embeddings = is_tied};
  options.data.source = folder.write("text.txt", std::string(200, 'x'));
  finalize(options);
  return options;
}

class StageState : public RankTest {
 protected:
  TempFolder folder_;
};

// No rank ever holds more than its stage and one tensor.
TEST_ON_PROCESSES(StageState, HoldsOneTensorAtATime) {
  install_memory_ledger();
  for (const bool is_tied : {false, true}) {
    SavedStage stage(options_of(folder_, is_tied), Mesh::split(comm_, size_));
    const TrainState state = stage.state();
    std::int64_t largest = 0;
    for (const FlatTensor& tensor : stage.plan.whole.tensors)
      largest = std::max(largest, tensor.numel);
    reset_memory_peaks();
    const std::int64_t before = read_memory().total_live_bytes;
    state.parameters.for_each([](const std::string&, const at::Tensor&) {});
    EXPECT_LE(read_memory().peak_bytes - before, 4 * largest);
    EXPECT_EQ(read_memory().total_live_bytes, before);
  }
}

}  // namespace
}  // namespace ladder
