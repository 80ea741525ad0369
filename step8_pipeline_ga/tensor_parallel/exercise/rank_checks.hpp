// For the judge, level 3: on every mesh that the ranks can be, which parts a rank has, with whom it
// adds up, what it counts, and which logits it returns.
#pragma once

#include <ATen/ops/full.h>
#include <ATen/ops/randint.h>

#include <cmath>
#include <limits>
#include <memory>
#include <string>

#include "common/comm/forwarding_communicator.hpp"
#include "common/comm/mesh.hpp"
#include "common/core/torch_types.hpp"
#include "common/optim/flat_model.hpp"
#include "common/testing/examination.hpp"
#include "common/train/build_model.hpp"
#include "common/train/report/console.hpp"
#include "common/train/start.hpp"
#include "step8_pipeline_ga/runner/stage_pipeline.hpp"
#include "step8_pipeline_ga/stage/stage_plan.hpp"
#include "step8_pipeline_ga/tensor_parallel/exercise/f_and_g_checks.hpp"
#include "step8_pipeline_ga/tensor_parallel/tensor_parts.hpp"
#include "step8_pipeline_ga/tensor_parallel/train.hpp"

namespace ladder::tensor_parallel {

// A world whose groups count what is started in them, and what is waited for.
class WatchedWorld : public ForwardingCommunicator {
 public:
  using ForwardingCommunicator::ForwardingCommunicator;
  std::unique_ptr<Communicator> split(int color, int key) override {
    return std::make_unique<Group>(inner_.split(color, key), *this);
  }
  int num_started = 0, num_waits = 0;

 private:
  struct WatchedWork final : Work {
    WatchedWork(WorkPtr the_work, WatchedWorld& of) : work(std::move(the_work)), world(of) {}
    bool test() override { return work->test(); }
    void wait() override {
      ++world.num_waits;
      work->wait();
    }
    WorkPtr work;
    WatchedWorld& world;
  };
  struct Group final : ForwardingCommunicator {
    Group(std::unique_ptr<Communicator> group, WatchedWorld& of)
        : ForwardingCommunicator(std::move(group)), world(of) {}
    WorkPtr start(const Operation& operation) override {
      ++world.num_started;
      return std::make_unique<WatchedWork>(inner_.start(operation), world);
    }
    WatchedWorld& world;
  };
};

class RankChecks : public Examination {
 public:
  explicit RankChecks(Communicator& comm) : Examination(comm) { say_only_first(); }

  void every_mesh_has_its_parts() {
    const int size = comm_.size();
    for (int stages = 1; stages <= size; ++stages) {
      for (int ranks = 1; stages * ranks <= size; ++ranks) {
        if (size % (stages * ranks) != 0) continue;
        for (const int each : {1, 2}) judge(mesh_shape(size, stages, ranks), each);
      }
    }
  }

 private:
  void judge(const MeshShape& shape, int each) {
    const std::string what = concat(
        count_of(shape.num_stages, "stage"), ", ", count_of(shape.num_replicas, "replica"), ", ",
        count_of(shape.num_tensor_ranks, "tensor rank"), " of ", count_of(each, "part"));
    const TrainOptions options = options_of(shape, each);
    const auto examine_on_mesh = [&](const std::string& check, const auto& act) {
      examine_next(what + ": " + check, [&](LockstepCommunicator& comm) {
        comm.pass_messages_on();
        WatchedWorld world(comm);
        const Mesh mesh = Mesh::split(world, shape.num_stages, shape.num_tensor_ranks);
        prefix_ = concat(what, ", rank ", comm.rank(), ": ");
        world_ = &world;
        act(mesh, parts_on(mesh, options));
      });
    };
    examine_on_mesh("parts", [&](const Mesh& mesh, const Parts& parts) {
      deals_neighbors(parts, mesh, each);
      counts_once(mesh);
    });
    examine_on_mesh("sums",
                    [&](const Mesh& mesh, const Parts& parts) { adds_up(parts, mesh, shape); });
    examine_on_mesh("logits", [&](const Mesh& mesh, const Parts& parts) {
      returns_whole_logits(parts, mesh, options);
    });
  }

  void deals_neighbors(const Parts& parts, const Mesh& mesh, int each) {
    const int total = each * mesh.num_tensor_ranks();
    expect("parts_on(): the number of all parts", parts.total, total);
    expect("the number of its own", parts.own, each);
    expect("the first of its own, each rank having neighbors,", parts.first, each * mesh.tp_rank());
  }

  void adds_up(const Parts& parts, const Mesh& mesh, const MeshShape& shape) {
    const bool is_alone = mesh.num_tensor_ranks() == 1;
    if (static_cast<bool>(parts.start_sum) == is_alone)
      return fault(is_alone ? "start_sum is there, but all parts are this rank's own"
                            : "there is no start_sum, but other ranks have parts");
    if (is_alone) return;
    // Each rank has a digit of its own.
    const at::Tensor who = at::full({3}, std::ldexp(1.0, comm_.rank()));
    parts.sum(who);
    const auto found = static_cast<int>(who[0].item<float>());
    std::string theirs, wanted;
    int sum = 0;
    for (int rank = 0; rank < comm_.size(); ++rank) {
      const bool is_in_group =
          shape.stage_of(rank) == mesh.pp_rank() && shape.replica_of(rank) == mesh.dp_rank();
      if (is_in_group) wanted += concat(wanted.empty() ? "" : " ", rank), sum += 1 << rank;
      if ((found >> rank) % 2 == 1) theirs += concat(theirs.empty() ? "" : " ", rank);
    }
    if (found != sum) return fault(concat("sum() adds up ranks ", theirs, ", not ", wanted));
    const int first = shape.rank_of(mesh.pp_rank(), mesh.dp_rank());
    const auto of_rank = [&](int tensor_rank) { return numbers({50}, first + tensor_rank); };
    const at::Tensor values = of_rank(mesh.tp_rank());
    world_->num_started = world_->num_waits = 0;
    const Parts::Wait wait = parts.start_sum(values);
    const bool has_started = world_->num_started > 0, has_waited = world_->num_waits > 0;
    wait();
    expect("what sum() leaves", values,
           tree_sum(0, mesh.num_tensor_ranks(), of_rank, std::plus<at::Tensor>()));
    if (!has_started) fault("start_sum() has not started anything");
    if (has_waited) fault("start_sum() has waited: until then, nothing can be computed");
  }

  void counts_once(const Mesh& mesh) {
    for (const double value : {1.5, std::numeric_limits<double>::infinity()})
      expect(concat("counted_once() of ", value), counted_once(value, mesh),
             mesh.tp_rank() == 0 ? value : 0.0);
  }

  // Two lengths, of which the model's whole context is the second.
  void returns_whole_logits(const Parts& parts, const Mesh& mesh, TrainOptions options) {
    for (const auto type : {at::kFloat, at::kBFloat16}) {
      options.model.precision.params = format_of(type);
      const StagePlan plan = plan_stage(options, mesh.num_stages(), mesh.pp_rank(), parts);
      FlatModel flat(plan.layout), all(layout_of(options));
      PipelineRunner pipeline = stage_pipeline(options, plan, flat, mesh.stages);
      WholeLogits logits(pipeline, parts, options.model.vocab_size);
      const Model whole = build_model(options, all);
      for (const std::int64_t length : {3, 8}) {
        const at::Tensor tokens = at::randint(options.model.vocab_size, {2, length},
                                              at::detail::createCPUGenerator(3), at::kLong);
        expect("what WholeLogits::forward() returns", logits.forward(tokens),
               whole.forward(tokens).slice(1, -1).detach());
      }
    }
  }

  static TrainOptions options_of(const MeshShape& shape, int each) {
    TrainOptions options = trainer().options;
    options.model = {.vocab_size = 63,  // divides into 3 parts only
                     .context = 8,
                     .layers = shape.num_stages,
                     .heads = 24,
                     .channels = 96,
                     .tie_embeddings = false,
                     .product_parts = each * shape.num_tensor_ranks};
    options.data.num_microbatches = shape.num_stages;
    options.set<PipelineOptions>().num_stages = shape.num_stages;
    options.set<TensorOptions>().num_ranks = shape.num_tensor_ranks;
    return options;
  }

  WatchedWorld* world_ = nullptr;  // of the mesh that is examined
};

}  // namespace ladder::tensor_parallel
