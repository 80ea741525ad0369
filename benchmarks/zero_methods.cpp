#include "benchmarks/zero_methods.hpp"

#include <ATen/ops/zeros.h>

#include <utility>

#include "common/core/check.hpp"
#include "common/train/build_model.hpp"
#include "step4_bucketed_ddp/gradient_bucketer.hpp"
#include "step5_zero1/sharded_optimizer.hpp"
#include "step6_zero2/gradient_sharder.hpp"
#include "step7_zero3/sharded_model.hpp"

namespace ladder {
namespace {

// Runs the units' reduce_scatters, one after the other, on a buffer of the model's size.
void reduce_scatter_alone(const FlatLayout& layout, const at::Tensor& full, Communicator& comm) {
  for (const GradientBucket& unit : plan_unit_buckets(layout))
    start_reduce_scatter(comm, full.narrow(0, unit.start, unit.numel))->wait();
}

class ZeroOne {
 public:
  ZeroOne(Replica& replica, Communicator& comm)
      : replica_(replica),
        comm_(comm),
        flat_(layout_of(replica.options, shard_multiple(comm.size()))),
        model_(build_model(replica.options, flat_)),
        grads_(flat_),
        bucketer_(grads_, plan_unit_buckets(flat_.layout()), comm, start_reduce_scatter) {}
  void step() {
    bucketer_.arm(1);
    accumulate_gradients(loss_of(model_, kNextToken), replica_.batch(), replica_.num_targets());
    bucketer_.wait();
    all_gather_parameters(flat_, comm_);
  }
  void sum_alone() {
    reduce_scatter_alone(flat_.layout(), grads_.flat(), comm_);
    all_gather_parameters(flat_, comm_);
  }

 private:
  Replica& replica_;
  Communicator& comm_;
  FlatModel flat_;
  Model model_;
  FlatGradients grads_;
  GradientBucketer bucketer_;
};

class ZeroTwo {
 public:
  ZeroTwo(Replica& replica, Communicator& comm)
      : replica_(replica),
        comm_(comm),
        flat_(layout_of(replica.options, shard_multiple(comm.size()))),
        model_(build_model(replica.options, flat_)),
        sharder_(plan_shards(flat_.layout(), comm.size(), comm.rank()), flat_.leaves(), comm) {}
  void step() {
    sharder_.arm(1);
    accumulate_gradients(loss_of(model_, kNextToken), replica_.batch(), replica_.num_targets());
    sharder_.wait();
    all_gather_parameters(flat_, comm_);
  }
  void sum_alone() {
    reduce_scatter_alone(flat_.layout(), at::zeros({flat_.layout().numel}, flat_.layout().device),
                         comm_);
    all_gather_parameters(flat_, comm_);
  }

 private:
  Replica& replica_;
  Communicator& comm_;
  FlatModel flat_;
  Model model_;
  GradientSharder sharder_;
};

class ZeroThree {
 public:
  ZeroThree(Replica& replica, Communicator& comm, int prefetch)
      : replica_(replica),
        comm_(comm),
        model_(model_builder(replica.options), prefetch, comm, replica.options.device),
        sharder_(model_.plan(), model_.leaves(), comm) {}
  void step() {
    sharder_.arm(1);
    accumulate_gradients(loss_of(model_, kNextToken), replica_.batch(), replica_.num_targets());
    sharder_.wait();
  }
  void sum_alone() {
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
  Replica& replica_;
  Communicator& comm_;
  ShardedModel model_;
  GradientSharder sharder_;
};

template <class Zero, class... Arguments>
Method zero_method(std::string name, Arguments... arguments) {
  return {std::move(name), [arguments...](Replica& replica, Communicator& comm) {
            const auto zero = std::make_shared<Zero>(replica, comm, arguments...);
            return GradientSum{[zero] { zero->step(); }, [zero] { zero->sum_alone(); }};
          }};
}

}  // namespace

Method zero1_method() {
  return zero_method<ZeroOne>("step 5, ZeRO-1");
}
Method zero2_method() {
  return zero_method<ZeroTwo>("step 6, ZeRO-2");
}
Method zero3_method(int prefetch) {
  return zero_method<ZeroThree>(concat("step 7, ZeRO-3, prefetch ", prefetch), prefetch);
}

}  // namespace ladder
