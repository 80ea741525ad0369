// Judges a sharded optimizer: the trainer shows what is summed, updated, held and sent; these checks
// show what holds nobody up, that frozen parameters stay as they are, and that slices may be long.
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>

#include "common/comm/self_communicator.hpp"
#include "common/core/memory_ledger.hpp"
#include "common/optim/norm.hpp"
#include "common/testing/judge_main.hpp"
#include "common/testing/recording_communicator.hpp"
#include "step0_single_gpu/judge/judge.hpp"
#include "step5_zero1/exercise/hostile_model.hpp"
#include "step5_zero1/sharded_optimizer.hpp"
#include "step5_zero1/train.hpp"

namespace ladder {
namespace step5 {
namespace {

// Rank 2 of 3, without the others: keeps what it is asked for.
class LastOfThree final : public ForwardingCommunicator {
 public:
  using ForwardingCommunicator::ForwardingCommunicator;
  int rank() const override { return 2; }
  int size() const override { return 3; }
  WorkPtr start(const Operation& operation) override {
    last = operation;
    return std::make_unique<DoneWork>();
  }

  Operation last;
};

class Checks : public Examination {
 public:
  using Examination::Examination;

  void starts_without_waiting(RecordingCommunicator& comm) {
    comm.set_network(Network::kSlow);
    const std::int64_t numel = 8;
    const at::Tensor unit = at::full({comm.size() * numel}, 1 + comm.rank(), at::kFloat);
    const at::Tensor wanted = unit.clone();
    wanted.narrow(0, comm.rank() * numel, numel).fill_(comm.size() * (comm.size() + 1) / 2);
    const WorkPtr work = start_reduce_scatter(comm, unit);
    expect(
        "the number of operations that start_reduce_scatter() waits for, which hold backward up,",
        comm.recording().num_waited_for, 0);
    work->wait();
    expect("a unit after its reduction, of which only the own slice is to change,", unit, wanted);
  }

  // On the meta device, where elements take no memory.
  void scatters_long_units() {
    constexpr std::int64_t kNumel = 5'000'000'000;
    SelfCommunicator alone;
    LastOfThree comm(alone);
    const at::Tensor unit = at::empty({3 * kNumel}, at::TensorOptions(at::kMeta));
    start_reduce_scatter(comm, unit)->wait();
    const std::string of_rank_2 = concat("of rank 2's slice of ", 3 * kNumel, " elements");
    if (!comm.last.shard.defined()) return fault("start_reduce_scatter() passes no slice on");
    expect("the number of elements " + of_rank_2, comm.last.shard.numel(), kNumel);
    expect("the first element " + of_rank_2, comm.last.shard.storage_offset(), 2 * kNumel);
  }

  // Block sums, and those of all ranks: 16 bytes per block of the model, not a copy of the slices.
  void takes_the_norm_without_a_copy(LockstepCommunicator& comm) {
    HostileModel model(comm.size());
    model.backward();
    const ShardPlan plan = plan_shards(model.flat.layout(), comm.size(), comm.rank());
    const std::vector<at::Tensor> slices = plan.slices_of_full(model.grads.flat());
    double norm = 0;
    expect_takes_at_most("sharded_norm()", 16 * (plan.layout.numel / kNormBlock) + 8192,
                         "is there a copy of the slices?",
                         [&] { norm = sharded_norm(slices, comm); });
    expect("the norm of gradients in units of very different length", norm,
           flat_norm(plan.layout, model.grads.flat()).value);
  }

  // A step, against that of one process.
  void leaves_the_frozen_alone(RecordingCommunicator& comm) {
    comm.set_network(Network::kSlow);
    HostileModel model(comm.size()), alone(comm.size());
    const ShardPlan plan = plan_shards(model.flat.layout(), comm.size(), comm.rank());
    ShardedOptimizer optimizer(plan, plan.slices_of_full(model.flat.params()),
                               plan.slices_of_full(model.grads.flat()), {});
    alone.backward();
    model.grads.flat().copy_(alone.grads.flat());
    Optimizer(alone.flat, alone.grads, {}).step(1e-2);
    optimizer.step(1e-2);
    all_gather_parameters(model.flat, comm);
    for (const FlatUnit& unit : plan.layout.units) {
      const auto in = [&](const FlatModel& of) {
        return of.params().narrow(0, unit.start, unit.numel);
      };
      expect(concat("unit '", unit.name, "' after a step"), in(model.flat), in(alone.flat));
    }
    const int num_units = static_cast<int>(plan_unit_buckets(plan.layout).size());
    expect("the number of units that all_gather_parameters() sends, without those that are frozen,",
           comm.recording().num_started, num_units);
    expect("the most units that all_gather_parameters() has in flight at once",
           comm.recording().most_on_their_way, num_units);
  }
};

}  // namespace
}  // namespace step5

std::vector<std::string> judge_linked(Communicator& comm) {
  Judge judge({.trainer = step5::trainer()}, comm);
  if (!judge.all_cases_are_right()) return judge.faults();
  step5::Checks checks(comm);
  checks.examine("start_reduce_scatter()", &step5::Checks::starts_without_waiting);
  checks.examine("start_reduce_scatter() of a long unit", &step5::Checks::scatters_long_units);
  checks.examine("sharded_norm()", &step5::Checks::takes_the_norm_without_a_copy);
  checks.examine("frozen parameters", &step5::Checks::leaves_the_frozen_alone);
  return checks.faults();
}

}  // namespace ladder
