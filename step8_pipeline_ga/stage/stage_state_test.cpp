#include "step8_pipeline_ga/stage/stage_state.hpp"

#include <gtest/gtest.h>

#include <map>

#include "common/core/memory_ledger.hpp"
#include "common/testing/closeness.hpp"
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
        model(build_model(options, plan.cut.layers_of(plan.stage), flat)),
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
  // Runs a test for both heads and every number of stages that divides the ranks.
  template <class Test>
  void for_each_shape(Test test) {
    for (const bool is_tied : {false, true}) {
      for (int num_stages = 1; num_stages <= size_; ++num_stages) {
        if (size_ % num_stages != 0) continue;
        SCOPED_TRACE(concat(is_tied ? "tied, " : "untied, ", num_stages, " stages"));
        test(options_of(folder_, is_tied), Mesh::split(comm_, num_stages));
      }
    }
  }

  TempFolder folder_;
};

// Rank 0 sees every tensor of a single process, in the order of their names, with its values; all
// others see none.
TEST_ON_RANKS(StageState, RankZeroSeesTheWholeModel) {
  for_each_shape([&](const TrainOptions& options, const Mesh& mesh) {
    SavedStage stage(options, mesh);
    FlatModel whole_flat(layout_of(options));
    const Model whole = build_model(options, whole_flat);
    std::map<std::string, at::Tensor> wanted;
    for (const NamedTensor& named : whole_flat.named_params()) wanted[named.name] = named.tensor;
    const TrainState state = stage.state();
    std::vector<std::string> names;
    state.parameters.for_each([&](const std::string& name, const at::Tensor& values) {
      names.push_back(name);
      EXPECT_TRUE(bits_equal(values, wanted.at(name))) << name;
    });
    int num_moments = 0;
    state.optimizer.for_each([&](const std::string&, const at::Tensor&) { ++num_moments; });
    EXPECT_EQ(names.size(), rank_ == 0 ? wanted.size() : 0u);
    EXPECT_EQ(num_moments, rank_ == 0 ? 2 * static_cast<int>(wanted.size()) : 0);
    EXPECT_TRUE(std::is_sorted(names.begin(), names.end()));
    EXPECT_EQ(state.parameters.stored.size(), wanted.size());
  });
}

// No rank ever holds more than its stage and one tensor.
TEST_ON_PROCESSES(StageState, HoldsOneTensorAtATime) {
  install_memory_ledger();
  for_each_shape([&](const TrainOptions& options, const Mesh& mesh) {
    SavedStage stage(options, mesh);
    const TrainState state = stage.state();
    std::int64_t largest = 0;
    for (const FlatTensor& tensor : stage.plan.whole.tensors)
      largest = std::max(largest, tensor.numel);
    reset_memory_peaks();
    const std::int64_t before = read_memory().total_live_bytes;
    state.parameters.for_each([](const std::string&, const at::Tensor&) {});
    EXPECT_LE(read_memory().peak_bytes - before, 4 * largest);
    EXPECT_EQ(read_memory().total_live_bytes, before);
  });
}

// Each stage keeps its part of what is read, a tied embedding's copy too.
TEST_ON_RANKS(StageState, FillKeepsThePartsOfTheStage) {
  for_each_shape([&](const TrainOptions& options, const Mesh& mesh) {
    SavedStage stage(options, mesh);
    const TrainState state = stage.state();
    float value = 1;
    std::map<std::string, float> values;
    for (const StoredTensor& stored : state.parameters.stored) {
      values[stored.name] = value;
      state.parameters.fill(stored.name, [&](const std::string&, const at::Tensor& buffer) {
        EXPECT_EQ(buffer.sizes(), at::IntArrayRef(stored.shape));
        at::Tensor(buffer).fill_(value);
      });
      value += 1;
    }
    for (const NamedTensor& named : stage.flat.named_params()) {
      EXPECT_EQ(named.tensor.min().item<float>(), values.at(named.name)) << named.name;
      EXPECT_EQ(named.tensor.max().item<float>(), values.at(named.name)) << named.name;
    }
  });
}

}  // namespace
}  // namespace ladder
