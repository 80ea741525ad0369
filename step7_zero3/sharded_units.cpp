#include "step7_zero3/sharded_units.hpp"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>
#include <c10/core/Allocator.h>

#include "common/core/check.hpp"
#include "common/core/memory_ledger.hpp"
#include "common/core/trace.hpp"

namespace ladder {
namespace {

void take_memory(const at::Tensor& full) {
  const MemoryScope scope(MemoryCategory::kParameters);
  const std::size_t num_bytes = static_cast<std::size_t>(full.numel()) * full.element_size();
  const c10::Storage& storage = full.storage();
  storage.set_data_ptr_noswap(c10::GetAllocator(full.device().type())->allocate(num_bytes));
  storage.set_nbytes(num_bytes);
}

void give_memory_back(const at::Tensor& full) {
  const c10::Storage& storage = full.storage();
  storage.set_data_ptr_noswap(c10::DataPtr(nullptr, full.device()));
  storage.set_nbytes(0);
}

}  // namespace

struct ShardedUnits::State {
  struct ShardedUnit {
    at::Tensor full;  // [numel], on the storage whose memory comes and goes
    WorkPtr gather;   // while it is in flight
    bool has_memory = false;
  };
  std::vector<ShardedUnit> units_;

  ShardPlan plan_;
  Communicator& comm_;
  at::Tensor param_shard_;
  std::vector<at::Tensor> slices_;  // of param_shard_, by unit
  std::vector<NamedTensor> leaves_;
  TraceLog* log_ = TraceLog::current();  // on a GPU, backward runs on a thread of autograd

  State(const ShardPlan& plan, Communicator& comm) : plan_(plan), comm_(comm) {
    const MemoryScope scope(MemoryCategory::kParameters);
    param_shard_ = at::zeros({plan.numel}, plan.layout.buffer(plan.layout.precision.params));
    slices_ = plan_.slices_of_shard(param_shard_);
  }

  // The unit's tensors keep their values, and become views of `full` [numel].
  void move_tensors(const Unit& unit, const FlatUnit& place, const at::Tensor& full) {
    for (const NamedTensor& named : unit.tensors) {
      at::Tensor tensor = named.tensor;  // a handle: set_data() changes the model's own tensor
      check(tensor.scalar_type() == full.scalar_type(), "ShardedUnits: '", named.name, "' is ",
            tensor.scalar_type(), ", but shards are ", full.scalar_type());
      const FlatTensor& planned = plan_.layout.tensors[leaves_.size()];
      const at::Tensor view =
          full.narrow(0, planned.start - place.start, planned.numel).view(planned.shape);
      view.copy_(tensor);
      tensor.set_data(view);
      leaves_.push_back(named);
    }
  }

  void add(const Unit& unit) {
    const at::NoGradGuard no_grad;
    const std::size_t u = units_.size();
    check(u < plan_.layout.units.size() && plan_.layout.units[u].name == unit.name,
          "ShardedUnits: unit '", unit.name, "' is not the next one of the plan");
    const FlatUnit& place = plan_.layout.units[u];
    {
      const MemoryScope scope(MemoryCategory::kParameters);
      units_.push_back({at::zeros({place.numel}, param_shard_.options()), nullptr, true});
    }
    const at::Tensor& full = units_.back().full;
    move_tensors(unit, place, full);
    slices_[u].copy_(full.narrow(0, comm_.rank() * slices_[u].numel(), slices_[u].numel()));
    reshard(u);
  }

  void start_unshard(std::size_t unit) {
    ShardedUnit& u = units_[unit];
    if (u.has_memory) return;
    const TraceScope scope(log_);  // on a GPU, backward calls this on a thread of autograd
    const Span span("unshard", {"unit", static_cast<std::int64_t>(unit)});
    take_memory(u.full);
    u.has_memory = true;
    u.gather = comm_.all_gather(slices_[unit], u.full);
  }

  void unshard(std::size_t unit) {
    start_unshard(unit);
    ShardedUnit& u = units_[unit];
    if (!u.gather) return;
    u.gather->wait();
    u.gather.reset();
  }

  void reshard(std::size_t unit) {
    ShardedUnit& u = units_[unit];
    if (!u.has_memory) return;
    if (u.gather) u.gather->wait();  // gathered ahead, but not used after all
    u.gather.reset();
    give_memory_back(u.full);
    u.has_memory = false;
  }

  void reshard_all() {
    for (std::size_t u = 0; u < units_.size(); ++u) reshard(u);
  }
};

ShardedUnits::ShardedUnits(const ShardPlan& plan, Communicator& comm)
    : state_(std::make_unique<State>(plan, comm)) {}

ShardedUnits::~ShardedUnits() = default;

void ShardedUnits::add(const Unit& unit) {
  state_->add(unit);
}

void ShardedUnits::start_unshard(std::size_t unit) {
  state_->start_unshard(unit);
}

void ShardedUnits::unshard(std::size_t unit) {
  state_->unshard(unit);
}

void ShardedUnits::reshard(std::size_t unit) {
  state_->reshard(unit);
}

void ShardedUnits::reshard_all() {
  state_->reshard_all();
}

const at::Tensor& ShardedUnits::param_shard() const {
  return state_->param_shard_;
}

const std::vector<NamedTensor>& ShardedUnits::leaves() const {
  return state_->leaves_;
}

}  // namespace ladder
