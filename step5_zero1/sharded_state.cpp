#include "step5_zero1/sharded_state.hpp"

#include <ATen/ops/empty.h>

#include <algorithm>
#include <map>

#include "common/core/memory_ledger.hpp"

namespace ladder {
namespace {

constexpr int kTag = 5;

at::Tensor scratch(std::int64_t numel, at::ScalarType type) {
  const MemoryScope scope(MemoryCategory::kCommunication);
  return at::empty({numel}, type);
}

// Returns one unit of a sharded buffer [N·n] on rank 0, and nothing on other ranks. Collective.
at::Tensor gather_on_rank_0(const at::Tensor& slice, Communicator& comm) {
  if (comm.rank() != 0) {
    comm.send(slice, /*peer=*/0, kTag)->wait();
    return {};
  }
  const std::int64_t numel = slice.numel();
  const at::Tensor unit = scratch(comm.size() * numel, slice.scalar_type());
  std::vector<WorkPtr> receipts;
  for (int peer = 1; peer < comm.size(); ++peer)
    receipts.push_back(comm.recv(unit.narrow(0, peer * numel, numel), peer, kTag));
  unit.narrow(0, 0, numel).copy_(slice);
  for (const WorkPtr& receipt : receipts) receipt->wait();
  return unit;
}

// Where a stored tensor comes from.
struct Source {
  FlatTensor tensor;
  std::size_t unit = 0;
  std::size_t shard = 0;  // which buffer
};

// Where each tensor is, by its stored name.
std::map<std::string, Source> sources_of(const ShardPlan& plan,
                                         const std::vector<NamedTensor>& shards) {
  std::map<std::string, Source> sources;
  std::size_t unit = 0;
  for (const FlatTensor& tensor : plan.layout.tensors) {
    while (tensor.start >= plan.layout.units[unit].start + plan.layout.units[unit].numel) ++unit;
    for (std::size_t s = 0; s < shards.size(); ++s) {
      const std::string& suffix = shards[s].name;
      sources[suffix.empty() ? tensor.name : tensor.name + "." + suffix] = {tensor, unit, s};
    }
  }
  return sources;
}

}  // namespace

StateTensors sharded_tensors(const ShardPlan& plan, const std::vector<NamedTensor>& shards,
                             ShardGroup& group) {
  const std::map<std::string, Source> sources = sources_of(plan, shards);
  StateTensors state;
  for (const auto& [name, source] : sources)
    state.stored.push_back({name, shards[source.shard].tensor.scalar_type(), source.tensor.shape});

  state.for_each = [=, &group](const TensorVisitor& visit) {
    if (group.copy() != 0) return;
    struct Gathered {
      std::size_t unit = ~std::size_t{0};
      at::Tensor full;
    };
    std::vector<Gathered> gathered(shards.size());  // for each buffer, the unit being written
    for (const auto& [name, source] : sources) {
      Gathered& buffer = gathered[source.shard];
      if (buffer.unit != source.unit) {
        const UnitSlice& slice = plan.slices[source.unit];
        buffer.full.reset();  // before the next one is gathered
        buffer = {source.unit, gather_on_rank_0(shards[source.shard].tensor.narrow(
                                                    0, slice.shard_start, slice.numel),
                                                group)};
      }
      if (group.rank() != 0) continue;
      const std::int64_t offset = source.tensor.start - plan.layout.units[source.unit].start;
      visit(name, buffer.full.narrow(0, offset, source.tensor.numel).view(source.tensor.shape));
    }
  };

  state.fill = [=](const std::string& name, const TensorVisitor& read) {
    const Source& source = sources.at(name);
    const UnitSlice& slice = plan.slices[source.unit];
    const at::Tensor& shard = shards[source.shard].tensor;
    const at::Tensor values = scratch(source.tensor.numel, shard.scalar_type());
    read(name, values.view(source.tensor.shape));
    const std::int64_t start = std::max(source.tensor.start, slice.start);
    const std::int64_t end =
        std::min(source.tensor.start + source.tensor.numel, slice.start + slice.numel);
    if (start >= end) return;
    shard.narrow(0, slice.shard_start + start - slice.start, end - start)
        .copy_(values.narrow(0, start - source.tensor.start, end - start));
  };
  return state;
}

StateTensors stored_parameters(const ShardPlan& plan, const StateTensors& parameters,
                               Optimizer& optimizer, ShardGroup& group) {
  if (!optimizer.masters().defined()) return in_fp32(parameters);
  return rounded_to(parameters, sharded_tensors(plan, {{"", optimizer.masters()}}, group),
                    optimizer);
}

TrainState sharded_state(const FlatModel& model, const ShardPlan& plan, Optimizer& optimizer,
                         BatchStream& batches, ShardGroup& group) {
  const StateTensors parameters = whole_tensors(model.named_params());
  return state_of(stored_parameters(plan, parameters, optimizer, group),
                  sharded_tensors(plan, optimizer.state(), group), optimizer, batches,
                  SummedModel{model.layout(), model.leaves()});
}

}  // namespace ladder
