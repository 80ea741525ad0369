// The ladder on GPUs: all steps in one program, on any number of ranks. Where each rank has a GPU
// of its own, messages go through NCCL with ordered reductions, otherwise through host memory.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "common/core/check.hpp"
#include "common/core/cuda_device.hpp"
#include "common/core/memory_ledger.hpp"
#include "common/core/torch_types.hpp"
#include "common/model/attention.hpp"
#include "common/testing/closeness.hpp"
#include "common/testing/rank_test.hpp"
#include "common/train/start.hpp"
#include "step0_single_gpu/cuda_graphs/train.hpp"
#include "step0_single_gpu/judge/comparison.hpp"
#include "step8_pipeline_ga/pipeline_options.hpp"
#include "step8_pipeline_ga/schedule/pipeline_schedule.hpp"
#include "step9_diloco/diloco_options.hpp"
#include "tests/parity/configurations.hpp"
#include "tests/parity/rungs.hpp"

namespace ladder {
namespace {

using ::testing::DoubleNear;
using ::testing::IsEmpty;
using ::testing::Pointwise;

const Trainer kWithGraphs = cuda_graphs::trainer();

class GpuLadder : public RankTest {
 protected:
  GpuLadder() {
    set_deterministic(true);
    install_memory_ledger(at::kCUDA);
    const bool has_own = num_cuda_devices() >= size_;
    const Transport transport = has_own      ? Transport::kNccl
                                : size_ == 1 ? Transport::kAuto
                                             : Transport::kMpi;
    world_ = std::make_unique<World>(transport, Link(), at::kCUDA,
                                     NcclOptions{.reduction = Reduction::kOrdered});
  }

  TrainOptions options(bool is_bf16) {
    Configuration configuration = covering_set()[1];
    configuration.num_microbatches = 2;
    configuration.has_odd_width = false;  // widths for which there are fused attention kernels
    configuration.is_bf16 = is_bf16;
    configuration.recompute = Recompute::kNone;
    TrainOptions options = options_of(configuration, texts_);
    options.device = Device::kCuda;
    options.data.is_pinned = true;
    return options;
  }
  // Each rank in a folder of its own: only rank 0 writes.
  FinishedRun train(const Trainer& rung, TrainOptions options) {
    options = options_for(rung, options);
    options.output.out = folder_.path(concat("run ", num_runs_++));
    const TrainReport report = rung.train(options, world_->comm());
    return {rung.step, report, options.output.out};
  }
  FinishedRun ask_oracle(const TrainOptions& options, int num_replicas) {
    return ladder::ask_oracle(options, num_replicas, folder_.path(concat("run ", num_runs_++)));
  }
  // Trains, and expects what the oracle does.
  FinishedRun expect_oracle(const Trainer& rung, const TrainOptions& wanted) {
    const FinishedRun run = train(rung, wanted), oracle = ask_oracle(wanted, size_);
    EXPECT_EQ(run.report.losses, oracle.report.losses);
    EXPECT_EQ(run.report.param_norms, oracle.report.param_norms);
    if (rank_ == 0) {
      EXPECT_THAT(differences(run, oracle), IsEmpty());
    }
    return run;
  }

  std::unique_ptr<World> world_;
  TempFolder folder_;
  const Texts texts_{folder_};
  int num_runs_ = 0;
};

// GPU and GPU: to the bit, in fp32 and in bf16. Memory on the GPU is what the cost card says.
TEST_ON_PROCESSES(GpuLadder, EveryStepEqualsTheOracle) {
  for (const bool is_bf16 : {false, true}) {
    for (const Trainer& rung : rungs()) {
      SCOPED_TRACE(concat(rung.step, is_bf16 ? " in bf16" : " in fp32"));
      TrainOptions wanted = comparable(rung, options(is_bf16));
      const MemoryReading before = read_memory();
      const FinishedRun run = expect_oracle(rung, wanted);
      wanted.step = rung.step;
      const StateBytes theory = rung.state_bytes(wanted, size_, rank_);
      const auto held = [&](MemoryCategory category) {
        return run.report.memory.live(category) - before.live(category);
      };
      EXPECT_EQ(held(MemoryCategory::kParameters), theory.parameters);
      EXPECT_EQ(held(MemoryCategory::kGradients), theory.gradients);
      EXPECT_EQ(held(MemoryCategory::kOptimizer), theory.optimizer);
      EXPECT_EQ(held(MemoryCategory::kCommunication), theory.communication);
    }
  }
}

// The ways to update that have no kernel of their own: SGD, and 16 bits without masters.
TEST_ON_PROCESSES(GpuLadder, EveryOptimizerEqualsTheOracle) {
  const auto expect_equal = [&](const TrainOptions& any) {
    for (const char* step : {"step4_bucketed_ddp", "step7_zero3"}) {
      SCOPED_TRACE(step);
      expect_oracle(rung_of(step), comparable(rung_of(step), any));
    }
  };
  for (const bool is_bf16 : {false, true}) {
    SCOPED_TRACE(is_bf16 ? "SGD in bf16" : "SGD in fp32");
    TrainOptions wanted = options(is_bf16);
    wanted.optimizer.kind = OptimizerKind::kSgd;
    wanted.lr.lr = 0.1;
    expect_equal(wanted);
  }
  for (const Masters masters : {Masters::kNone, Masters::kStochastic}) {
    SCOPED_TRACE(masters == Masters::kNone ? "no masters" : "stochastic rounding");
    TrainOptions wanted = options(/*is_bf16=*/true);
    wanted.optimizer.masters = masters;
    expect_equal(wanted);
  }
}

// Runs with and without CUDA graphs are equal to the bit, in every precision. An epoch ends within
// the run, with fewer rows, and an evaluation comes in between.
TEST_ON_PROCESSES(GpuLadder, CudaGraphsChangeNoBit) {
  if (size_ > 1) return;
  for (const at::ScalarType type : {at::kFloat, at::kBFloat16, at::kHalf}) {
    TrainOptions wanted = options(/*is_bf16=*/false);
    wanted.model.precision.params = format_of(type);
    SCOPED_TRACE(concat(type, ", attention: ", attention_backend(wanted.model, wanted.device)));
    wanted.data.num_microbatches = 3;
    wanted.loss_scale.initial = 1024;  // of fp16: overflows nowhere, and NaN would equal nothing
    const FinishedRun usual = train(oracle(), wanted);
    const FinishedRun graphs = train(kWithGraphs, wanted);
    EXPECT_EQ(graphs.report.grad_norms, usual.report.grad_norms);
    EXPECT_THAT(differences(graphs, usual), IsEmpty());
    const auto& other = graphs.report.memory.other_bytes;  // or it ran without graphs
    EXPECT_TRUE(other.contains("CUDA graphs"));
  }
}

// A block computed again, in autograd's thread, has the bits of the first time: with hooks in backward,
// with units that come and go, and in a CUDA graph.
TEST_ON_PROCESSES(GpuLadder, RecomputingChangesNoBit) {
  for (const at::ScalarType type : {at::kFloat, at::kBFloat16, at::kHalf}) {
    TrainOptions kept = options(/*is_bf16=*/false);
    kept.model.precision.params = format_of(type);
    kept.loss_scale.initial = 1024;
    std::vector<Trainer> trainers = {rung_of("step4_bucketed_ddp"), rung_of("step7_zero3")};
    if (size_ == 1) trainers.push_back(kWithGraphs);
    for (const Trainer& trainer : trainers) {
      SCOPED_TRACE(concat(trainer.step, " in ", type));
      TrainOptions wanted = comparable(trainer, kept);
      const FinishedRun usual = train(trainer, wanted);
      wanted.model.recompute = Recompute::kBlocks;
      const FinishedRun again = train(trainer, wanted);
      EXPECT_EQ(again.report.losses, usual.report.losses);
      EXPECT_EQ(again.report.grad_norms, usual.report.grad_norms);
      EXPECT_EQ(again.report.param_norms, usual.report.param_norms);
    }
  }
}

// What ./ladder bench gpu runs: with any kernel that libtorch likes, on an H100 cuDNN's attention.
// Heads are as wide as GPT-2's. After twelve steps in bf16, losses were up to 1.2e-3 apart on an H200.
TEST_ON_PROCESSES(GpuLadder, TheFastestKernelsStayClose) {
  if (size_ > 1) return;
  TrainOptions wanted = options(/*is_bf16=*/true);
  wanted.model.channels = 64 * wanted.model.heads;
  const std::vector<double> repeatable = train(oracle(), wanted).report.losses;
  set_deterministic(false);
  for (const Trainer& rung : {oracle(), kWithGraphs}) {
    SCOPED_TRACE(
        concat(rung.step, ", attention: ", attention_backend(wanted.model, wanted.device)));
    const std::vector<double> fastest = train(rung, wanted).report.losses;
    ASSERT_EQ(fastest.size(), repeatable.size());
    for (std::size_t i = 0; i < fastest.size(); ++i) {
      EXPECT_NEAR(fastest[i], repeatable[i], 3e-3 * repeatable[i]) << "step " << i;
    }
  }
}

// One stage on each rank, and pipelines of two stages with replicas.
TEST_ON_PROCESSES(GpuLadder, APipelineEqualsTheOracle) {
  for (int num_stages = std::min(size_, 2); num_stages <= size_; ++num_stages) {
    if (size_ % num_stages != 0) continue;
    for (const Schedule schedule : {Schedule::k1f1b, Schedule::kInterleaved}) {
      const int num_chunks = schedule == Schedule::kInterleaved ? 2 : 1;
      if (num_stages < num_chunks) continue;
      SCOPED_TRACE(concat(num_stages, " stages, ", to_string(schedule)));
      TrainOptions wanted = options(/*is_bf16=*/false);
      wanted.num_steps = 6;
      wanted.model.tie_embeddings = false;  // a tied head would add up two parts in another order
      wanted.model.layers = num_stages * num_chunks;
      wanted.data.num_microbatches = num_stages + 1;
      wanted.set<PipelineOptions>() = {
          .num_stages = num_stages, .schedule = schedule, .chunks_per_stage = num_chunks};
      const FinishedRun run = train(pipeline(), wanted);
      const FinishedRun oracle = ask_oracle(wanted, size_ / num_stages);
      EXPECT_EQ(run.report.losses, oracle.report.losses);
      EXPECT_EQ(run.report.param_norms, oracle.report.param_norms);
    }
  }
}

// Workers with an average in flight when they are stopped go on as if they had not been.
TEST_ON_PROCESSES(GpuLadder, DilocoResumes) {
  for (const WireFormat wire : {WireFormat::kFp32, WireFormat::kInt8}) {
    TrainOptions wanted = options(/*is_bf16=*/true);
    wanted.set<DilocoOptions>() = {
        .sync_every = 4, .num_fragments = 2, .sync_delay = 1, .wire = wire};
    wanted.output.save_every = 3;
    wanted.output.keep = 0;
    const FinishedRun whole = train(diloco(), wanted);
    // Step 3 is in the middle of the second round.
    wanted.output.resume = all_gather_text(whole.folder, comm_)[0] + "/checkpoints/step_000003";
    const FinishedRun rest = train(diloco(), wanted);
    EXPECT_EQ(rest.report.first_step, 3);
    EXPECT_EQ(rest.report.param_hash, whole.report.param_hash);
  }
}

// GPU and CPU: another order of sums in every product, over 12 steps of fp32.
TEST_ON_PROCESSES(GpuLadder, FollowsTheCpu) {
  if (size_ > 1) return;
  TrainOptions on_gpu = options(/*is_bf16=*/false), on_cpu = on_gpu;
  on_cpu.device = Device::kCpu;
  const std::vector<double> gpu = ask_oracle(on_gpu, 1).report.losses;
  const std::vector<double> cpu = ask_oracle(on_cpu, 1).report.losses;
  EXPECT_THAT(gpu, Pointwise(DoubleNear(1e-5), cpu));
}

// A checkpoint of one device goes on on the other.
TEST_ON_PROCESSES(GpuLadder, CheckpointsCrossDevices) {
  if (size_ > 1) return;
  for (const Device first : {Device::kCuda, Device::kCpu}) {
    TrainOptions begun = options(/*is_bf16=*/true);
    begun.device = first;
    begun.num_steps = 4;
    const FinishedRun start = ask_oracle(begun, 1);
    begun.device = first.is_cuda() ? Device::kCpu : Device::kCuda;
    begun.num_steps = 6;
    begun.output.resume = start.folder;
    const FinishedRun rest = ask_oracle(begun, 1);
    EXPECT_EQ(rest.report.first_step, 4);
    EXPECT_EQ(rest.report.losses.size(), 2u);
    EXPECT_LT(rest.report.losses.front(), start.report.losses.front());
  }
}

}  // namespace
}  // namespace ladder
