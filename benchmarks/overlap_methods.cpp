// The ways to sum gradients that overlap_measurement.hpp compares: those of steps 1, 3 to 7 and 9.
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>

#include <memory>
#include <optional>
#include <utility>

#include "benchmarks/overlap_measurement.hpp"
#include "common/core/check.hpp"
#include "common/train/build_model.hpp"
#include "step1_ddp_reference/reference_ddp.hpp"
#include "step3_naive_dp/naive_dp.hpp"
#include "step4_bucketed_ddp/gradient_bucketer.hpp"
#include "step5_zero1/sharded_optimizer.hpp"
#include "step6_zero2/gradient_sharder.hpp"
#include "step7_zero3/sharded_model.hpp"
#include "step9_diloco/averager.hpp"

namespace ladder {
namespace {

// Nothing overlaps: the collectives follow backward.
GradientSum after_backward(Replica& replica, const std::function<void()>& sum_alone) {
  return {[=, &replica] {
            replica.forward_and_backward(loss_of(replica.model, kNextToken));
            sum_alone();
          },
          sum_alone};
}

// The hooks of `reduction` start the collectives during backward.
template <class Reduction, class AnyModel>
void step_with(Reduction& reduction, Replica& replica, AnyModel& model) {
  reduction.arm(1);
  replica.forward_and_backward(loss_of(model, kNextToken));
  reduction.wait();
}

// Starts the all-reduces of all buckets, then waits for them.
void all_reduce_buckets(const std::vector<GradientBucket>& plan, const at::Tensor& flat,
                        Communicator& comm) {
  std::vector<WorkPtr> works;
  for (const GradientBucket& bucket : plan)
    works.push_back(comm.all_reduce(flat.narrow(0, bucket.start, bucket.numel)));
  for (const WorkPtr& work : works) work->wait();
}

// Runs the units' reduce_scatters, one after the other, on a buffer of the model's size.
void reduce_scatter_alone(const FlatLayout& layout, const at::Tensor& full, Communicator& comm) {
  for (const GradientBucket& unit : plan_unit_buckets(layout))
    start_reduce_scatter(comm, full.narrow(0, unit.start, unit.numel))->wait();
}

// What step 7 sends: blocks are gathered twice.
void gather_and_scatter_units(const FlatLayout& layout, Communicator& comm) {
  const at::Tensor full = at::zeros({layout.numel}, layout.device);
  for (std::size_t u = 0; u < layout.units.size(); ++u) {
    const FlatUnit& unit = layout.units[u];
    const std::int64_t numel = unit.numel / comm.size();
    const at::Tensor place = full.narrow(0, unit.start, unit.numel);
    const bool is_block = u > 0 && u + 1 < layout.units.size();
    for (int gather = 0; gather < (is_block ? 2 : 1); ++gather)
      comm.all_gather(place.narrow(0, comm.rank() * numel, numel), place)->wait();
  }
  reduce_scatter_alone(layout, full, comm);
}

// The model of steps 5 and 6, padded so that each unit has a slice for every rank.
template <class Reduction>
struct Sharded {
  Sharded(const Replica& replica, const Communicator& comm)
      : flat(layout_of(replica.options, shard_multiple(comm.size()))),
        model(build_model(replica.options, flat)) {}

  FlatModel flat;
  Model model;
  std::optional<FlatGradients> grads;  // of step 5
  std::optional<Reduction> reduction;
};

// start(sharded, comm) makes its reduction.
template <class Reduction, class Start>
Method sharded_method(const std::string& name, const Start& start) {
  return {name, [=](Replica& replica, Communicator& comm) -> GradientSum {
            const auto sharded = std::make_shared<Sharded<Reduction>>(replica, comm);
            start(*sharded, comm);
            return {[=, &replica, &comm] {
                      step_with(*sharded->reduction, replica, sharded->model);
                      all_gather_parameters(sharded->flat, comm);
                    },
                    [=, &comm] {
                      const FlatLayout& layout = sharded->flat.layout();
                      reduce_scatter_alone(layout, at::zeros({layout.numel}, layout.device), comm);
                      all_gather_parameters(sharded->flat, comm);
                    }};
          }};
}

// The model of step 7, and its gradients.
struct ZeroThree {
  ZeroThree(const Replica& replica, int prefetch, Communicator& comm)
      : model(model_builder(replica.options), prefetch, comm, replica.options.device),
        sharder(model.plan(), model.leaves(), comm) {}

  ShardedModel model;
  GradientSharder sharder;
};

std::string size_text(std::int64_t bytes) {
  const bool is_large = bytes >= 1 << 20;
  return concat(bytes >> (is_large ? 20 : 10), is_large ? " MiB" : " KiB");
}

}  // namespace

Method reference_method() {
  return {"step 1, libtorch's Reducer", [](Replica& replica, Communicator& comm) -> GradientSum {
            const auto ddp = std::make_shared<ReferenceDdp>(replica.flat, comm);
            std::vector<at::Tensor> buckets;  // as large as the Reducer's
            for (const std::int64_t numel : plan_reference_buckets(replica.model.units()))
              buckets.push_back(at::zeros({numel}, replica.options.device));
            return {[=, &replica] {
                      ddp->arm(1);
                      replica.forward_and_backward(ddp->wrap(loss_of(replica.model, kNextToken)));
                      ddp->wait();
                    },
                    [=, &comm] {
                      for (const at::Tensor& bucket : buckets) comm.all_reduce(bucket)->wait();
                    }};
          }};
}

Method naive_method() {
  return {"step 3, tensor by tensor", [](Replica& replica, Communicator& comm) {
            return after_backward(replica, [&] { all_reduce_gradients(replica.grads, comm); });
          }};
}

Method unoverlapped_method(std::int64_t capacity_bytes) {
  return {concat("no overlap, buckets of ", size_text(capacity_bytes)),
          [=](Replica& replica, Communicator& comm) {
            const auto plan = plan_buckets(replica.flat.layout(), capacity_bytes);
            return after_backward(replica, [=, &replica, &comm] {
              all_reduce_buckets(plan, replica.grads.flat(), comm);
            });
          }};
}

Method bucketed_method(std::int64_t capacity_bytes) {
  return {concat("step 4, buckets of ", size_text(capacity_bytes)),
          [=](Replica& replica, Communicator& comm) -> GradientSum {
            const auto plan = plan_buckets(replica.flat.layout(), capacity_bytes);
            const auto bucketer = std::make_shared<GradientBucketer>(replica.grads, plan, comm);
            return {[=, &replica] { step_with(*bucketer, replica, replica.model); },
                    [=, &replica, &comm] { all_reduce_buckets(plan, replica.grads.flat(), comm); }};
          }};
}

Method zero1_method() {
  return sharded_method<GradientBucketer>("step 5, ZeRO-1", [](auto& sharded, Communicator& comm) {
    sharded.grads.emplace(sharded.flat);
    sharded.reduction.emplace(*sharded.grads, plan_unit_buckets(sharded.flat.layout()), comm,
                              start_reduce_scatter);
  });
}

Method zero2_method() {
  return sharded_method<GradientSharder>("step 6, ZeRO-2", [](auto& sharded, Communicator& comm) {
    sharded.reduction.emplace(plan_shards(sharded.flat.layout(), comm.size(), comm.rank()),
                              sharded.flat.leaves(), comm);
  });
}

Method zero3_method(int prefetch) {
  return {concat("step 7, ZeRO-3, prefetch ", prefetch),
          [=](Replica& replica, Communicator& comm) -> GradientSum {
            const auto sharded = std::make_shared<ZeroThree>(replica, prefetch, comm);
            return {[=, &replica] { step_with(sharded->sharder, replica, sharded->model); },
                    [=, &comm] { gather_and_scatter_units(sharded->model.plan().layout, comm); }};
          }};
}

// Step 9's average of the whole model: it is in flight during one inner step (--sync-delay 1), and
// the gradient hooks poll, or nobody does.
Method diloco_method(bool is_polled) {
  return {is_polled ? "step 9, delay 1" : "the same, never polled",
          [=](Replica& replica, Communicator& comm) -> GradientSum {
            const auto averager = std::make_shared<GroupAverager>(comm);
            const at::Tensor values = at::zeros_like(replica.flat.params());
            const auto hooks = is_polled
                                   ? std::make_shared<GradientHooks>(
                                         replica.flat.leaves(), [=](auto) { averager->poll(); })
                                   : nullptr;
            return {[=, &replica] {
                      static_cast<void>(hooks);  // alive as long as this
                      averager->start(values);
                      replica.forward_and_backward(loss_of(replica.model, kNextToken));
                      averager->finish();
                    },
                    [=] {
                      averager->start(values);
                      averager->finish();
                    }};
          }};
}

}  // namespace ladder
