// Judges a sharded optimizer: the trainer shows what is summed, updated, held and sent; these checks
// show what holds nobody up, that frozen parameters stay as they are, that slices may be long, and
// that all is of the communicator's ranks, which may be some of the processes in another order.
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <string>
#include <vector>

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

// The communicator of a rank whose others are gone.
class Forsaken final : public ForwardingCommunicator {
 public:
  using ForwardingCommunicator::ForwardingCommunicator;
  WorkPtr start(const Operation& /*operation*/) override { throw CheckError("rank 1 is gone"); }
};

class Checks : public Examination {
 public:
  using Examination::Examination;

  void passes_errors_on(LockstepCommunicator& comm) {
    Forsaken forsaken(comm);
    HostileModel model(comm.size());
    const ShardPlan plan = plan_shards(model.flat.layout(), comm.size(), comm.rank());
    const auto throws = [&](const std::string& what, const std::function<void()>& call) {
      expect_error(what + ", when another rank is gone,", {"rank 1 is gone"}, call);
    };
    throws("start_reduce_scatter()",
           [&] { start_reduce_scatter(forsaken, model.grads.flat())->wait(); });
    throws("sharded_norm()",
           [&] { sharded_norm(plan.slices_of_full(model.grads.flat()), forsaken); });
    throws("start_parameter_gathers()", [&] { start_parameter_gathers(model.flat, forsaken); });
  }

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

  // A rank whose gradients vanish adds them all the same: the others wait for it.
  void scatters_zeros(LockstepCommunicator& comm) {
    const std::int64_t numel = 8;
    const at::Tensor unit = at::full({comm.size() * numel}, comm.rank() == 0 ? 0 : 1, at::kFloat);
    const at::Tensor wanted = unit.clone();
    wanted.narrow(0, comm.rank() * numel, numel).fill_(comm.size() - 1);
    start_reduce_scatter(comm, unit)->wait();
    expect("a unit after its reduction, of which rank 0 has zeros,", unit, wanted);
  }

  // The units are on the meta device, where elements take no memory.
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
    Norm norm = 0.0;
    expect_takes_at_most("sharded_norm()", 16 * (plan.layout.numel / kNormBlock) + 8192,
                         "is there a copy of the slices?",
                         [&] { norm = sharded_norm(slices, comm); });
    const Norm wanted = flat_norm(plan.layout, model.grads.flat());
    expect("the norm of gradients in units of very different length", norm.value, wanted.value);
    expect("the number of its block sums", norm.block_sums.size(), wanted.block_sums.size());
    if (norm.block_sums != wanted.block_sums)
      fault("its block sums are not those of one process, unit by unit");
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
    const std::vector<WorkPtr> gathers = start_parameter_gathers(model.flat, comm);
    expect("the number of handles that start_parameter_gathers() returns, one per unit,",
           static_cast<int>(gathers.size()), static_cast<int>(plan.layout.units.size()));
    expect("the number of gathers that start_parameter_gathers() waits for, which hold forward up,",
           comm.recording().num_waited_for, 0);
    if (gathers.size() != plan.layout.units.size()) return;
    const std::vector<StartedOperation>& started = comm.recording().started;
    if (!std::is_sorted(started.begin(), started.end(),
                        [](const auto& a, const auto& b) { return a.data < b.data; }))
      fault("start_parameter_gathers() does not start with the units that forward needs first");
    int num_waited_for = 0;
    for (std::size_t u = 0; u < gathers.size(); ++u) {
      gathers[u]->wait();
      num_waited_for += has_trainable(plan.layout, plan.layout.units[u]) ? 1 : 0;
      expect(concat("the number of gathers waited for with the handle of unit '",
                    plan.layout.units[u].name, "', and those before,"),
             comm.recording().num_waited_for, num_waited_for);
    }
    for (const FlatUnit& unit : plan.layout.units) {
      const auto in = [&](const FlatModel& of) {
        return of.params().narrow(0, unit.start, unit.numel);
      };
      expect(concat("unit '", unit.name, "' after a step"), in(model.flat), in(alone.flat));
    }
    const int num_units = static_cast<int>(plan_unit_buckets(plan.layout).size());
    expect(
        "the number of units that start_parameter_gathers() sends, without those that are frozen,",
        comm.recording().num_started, num_units);
    expect("the most units that start_parameter_gathers() has in flight at once",
           comm.recording().most_on_their_way, num_units);
  }
};

}  // namespace
}  // namespace step5

std::vector<std::string> judge_linked(Communicator& comm) {
  Judge judge({.trainer = step5::trainer()}, comm);
  if (!judge.all_cases_are_right()) return judge.faults();
  const std::unique_ptr<Communicator> half = comm.split(comm.rank() % 2, -comm.rank());
  step5::Checks checks(comm), of_half(*half);
  checks.examine("start_reduce_scatter()", &step5::Checks::starts_without_waiting);
  checks.examine("start_reduce_scatter() of zeros", &step5::Checks::scatters_zeros);
  checks.examine("start_reduce_scatter() of a long unit", &step5::Checks::scatters_long_units);
  checks.examine("sharded_norm()", &step5::Checks::takes_the_norm_without_a_copy);
  checks.examine("frozen parameters", &step5::Checks::leaves_the_frozen_alone);
  checks.examine("errors of the communicator", &step5::Checks::passes_errors_on);
  if (!checks.faults().empty()) return checks.faults();
  const std::string in_half = "in a group of every second rank, in reverse order";
  of_half.begin_faults_with(in_half + ": ");
  of_half.examine(in_half, &step5::Checks::starts_without_waiting);
  of_half.examine(in_half, &step5::Checks::takes_the_norm_without_a_copy);
  of_half.examine(in_half, &step5::Checks::leaves_the_frozen_alone);
  return faults_of_groups(of_half.faults(), comm);
}

}  // namespace ladder
