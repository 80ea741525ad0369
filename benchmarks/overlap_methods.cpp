// The ways to sum gradients that overlap_measurement.hpp compares: those of steps 1, 3 to 7 and 9.
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>

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

class ReferenceSum final : public GradientSum {
 public:
  ReferenceSum(Replica& replica, Communicator& comm)
      : GradientSum(replica, comm), ddp_(replica.flat, comm) {
    for (const std::int64_t numel : plan_reference_buckets(replica.model.units())) {
      buckets_.push_back(at::zeros({numel}, replica.options.device));
    }
  }
  void step() override {
    ddp_.arm(1);
    replica_.forward_and_backward(ddp_.wrap(loss_of(replica_.model, kNextToken)));
    ddp_.wait();
  }
  void sum_alone() override {
    for (const at::Tensor& bucket : buckets_) comm_.all_reduce(bucket)->wait();
  }

 private:
  ReferenceDdp ddp_;
  std::vector<at::Tensor> buckets_;  // as large as the Reducer's
};

class NaiveSum final : public GradientSum {
 public:
  using GradientSum::GradientSum;
  void step() override {
    replica_.forward_and_backward(loss_of(replica_.model, kNextToken));
    sum_alone();
  }
  void sum_alone() override { all_reduce_gradients(replica_.grads, comm_); }
};

// Starts the all-reduces of all buckets after backward, then waits for them.
class UnoverlappedSum : public GradientSum {
 public:
  UnoverlappedSum(Replica& replica, Communicator& comm, std::int64_t capacity_bytes)
      : GradientSum(replica, comm), plan_(plan_buckets(replica.flat.layout(), capacity_bytes)) {}
  void step() override {
    replica_.forward_and_backward(loss_of(replica_.model, kNextToken));
    sum_alone();
  }
  void sum_alone() override {
    std::vector<WorkPtr> works;
    for (const GradientBucket& bucket : plan_) {
      works.push_back(
          comm_.all_reduce(replica_.grads.flat().narrow(0, bucket.start, bucket.numel)));
    }
    for (const WorkPtr& work : works) work->wait();
  }

 protected:
  std::vector<GradientBucket> plan_;
};

class BucketedSum final : public UnoverlappedSum {
 public:
  BucketedSum(Replica& replica, Communicator& comm, std::int64_t capacity_bytes)
      : UnoverlappedSum(replica, comm, capacity_bytes), bucketer_(replica.grads, plan_, comm) {}
  void step() override {
    bucketer_.arm(1);
    replica_.forward_and_backward(loss_of(replica_.model, kNextToken));
    bucketer_.wait();
  }

 private:
  GradientBucketer bucketer_;
};

// Runs the units' reduce_scatters, one after the other, on a buffer of the model's size.
void reduce_scatter_alone(const FlatLayout& layout, const at::Tensor& full, Communicator& comm) {
  for (const GradientBucket& unit : plan_unit_buckets(layout))
    start_reduce_scatter(comm, full.narrow(0, unit.start, unit.numel))->wait();
}

// The model of steps 5 and 6 is padded, so that each unit has a slice for every rank.
class ShardedSum : public GradientSum {
 public:
  ShardedSum(Replica& replica, Communicator& comm)
      : GradientSum(replica, comm),
        flat_(layout_of(replica.options, shard_multiple(comm.size()))),
        model_(build_model(replica.options, flat_)) {}
  void sum_alone() override {
    const FlatLayout& layout = flat_.layout();
    reduce_scatter_alone(layout, at::zeros({layout.numel}, layout.device), comm_);
    all_gather_parameters(flat_, comm_);
  }

 protected:
  template <class Reduction>
  void step_with(Reduction& reduction) {
    reduction.arm(1);
    replica_.forward_and_backward(loss_of(model_, kNextToken));
    reduction.wait();
    all_gather_parameters(flat_, comm_);
  }

  FlatModel flat_;
  Model model_;
};

class ZeroOneSum final : public ShardedSum {
 public:
  ZeroOneSum(Replica& replica, Communicator& comm)
      : ShardedSum(replica, comm),
        grads_(flat_),
        bucketer_(grads_, plan_unit_buckets(flat_.layout()), comm, start_reduce_scatter) {}
  void step() override { step_with(bucketer_); }

 private:
  FlatGradients grads_;
  GradientBucketer bucketer_;
};

class ZeroTwoSum final : public ShardedSum {
 public:
  ZeroTwoSum(Replica& replica, Communicator& comm)
      : ShardedSum(replica, comm),
        sharder_(plan_shards(flat_.layout(), comm.size(), comm.rank()), flat_.leaves(), comm) {}
  void step() override { step_with(sharder_); }

 private:
  GradientSharder sharder_;
};

class ZeroThreeSum final : public GradientSum {
 public:
  ZeroThreeSum(Replica& replica, Communicator& comm, int prefetch)
      : GradientSum(replica, comm),
        model_(model_builder(replica.options), prefetch, comm, replica.options.device),
        sharder_(model_.plan(), model_.leaves(), comm) {}
  void step() override {
    sharder_.arm(1);
    replica_.forward_and_backward(loss_of(model_, kNextToken));
    sharder_.wait();
  }
  void sum_alone() override {
    const FlatLayout& layout = model_.plan().layout;
    const at::Tensor full = at::zeros({layout.numel}, layout.device);
    for (std::size_t u = 0; u < layout.units.size(); ++u) {
      const FlatUnit& unit = layout.units[u];
      const std::int64_t numel = unit.numel / comm_.size();
      const at::Tensor place = full.narrow(0, unit.start, unit.numel);
      const bool is_block = u > 0 && u + 1 < layout.units.size();
      for (int gather = 0; gather < (is_block ? 2 : 1); ++gather)
        comm_.all_gather(place.narrow(0, comm_.rank() * numel, numel), place)->wait();
    }
    reduce_scatter_alone(layout, full, comm_);
  }

 private:
  ShardedModel model_;
  GradientSharder sharder_;
};

// Step 9's average of the whole model: it is in flight during one inner step (--sync-delay 1), and
// the gradient hooks poll, or nobody does.
class DelayedAverage final : public GradientSum {
 public:
  DelayedAverage(Replica& replica, Communicator& comm, bool is_polled)
      : GradientSum(replica, comm),
        averager_(comm),
        values_(at::zeros_like(replica.flat.params())) {
    if (is_polled) hooks_.emplace(replica.flat.leaves(), [this](auto) { averager_.poll(); });
  }
  void step() override {
    averager_.start(values_);
    replica_.forward_and_backward(loss_of(replica_.model, kNextToken));
    averager_.finish();
  }
  void sum_alone() override {
    averager_.start(values_);
    averager_.finish();
  }

 private:
  GroupAverager averager_;
  at::Tensor values_;
  std::optional<GradientHooks> hooks_;
};

template <class Sum, class... Arguments>
Method method_of(std::string name, Arguments... arguments) {
  return {std::move(name), [arguments...](Replica& replica, Communicator& comm) {
            return std::make_unique<Sum>(replica, comm, arguments...);
          }};
}

std::string size_text(std::int64_t bytes) {
  const bool is_large = bytes >= 1 << 20;
  return concat(bytes >> (is_large ? 20 : 10), is_large ? " MiB" : " KiB");
}

}  // namespace

Method reference_method() {
  return method_of<ReferenceSum>("step 1, libtorch's Reducer");
}
Method naive_method() {
  return method_of<NaiveSum>("step 3, tensor by tensor");
}
Method bucketed_method(std::int64_t capacity_bytes) {
  return method_of<BucketedSum>(concat("step 4, buckets of ", size_text(capacity_bytes)),
                                capacity_bytes);
}
Method unoverlapped_method(std::int64_t capacity_bytes) {
  return method_of<UnoverlappedSum>(concat("no overlap, buckets of ", size_text(capacity_bytes)),
                                    capacity_bytes);
}
Method zero1_method() {
  return method_of<ZeroOneSum>("step 5, ZeRO-1");
}
Method zero2_method() {
  return method_of<ZeroTwoSum>("step 6, ZeRO-2");
}
Method zero3_method(int prefetch) {
  return method_of<ZeroThreeSum>(concat("step 7, ZeRO-3, prefetch ", prefetch), prefetch);
}
Method diloco_method(bool is_polled) {
  return method_of<DelayedAverage>(is_polled ? "step 9, delay 1" : "the same, never polled",
                                   is_polled);
}

}  // namespace ladder
