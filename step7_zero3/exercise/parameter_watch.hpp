// For the grader: sees which unit's parameters an operator is about to read, in forward and in
// backward.
//
// A parameter whose memory is gone would be read from address 0, and that ends the program. The
// grader would rather say it. So such a unit gets memory at that moment, full of NaN, and keeps it.
//
// Threads:  watches the thread that makes it; one watch at a time.
// Lifetime: it is deaf when it is gone.
#pragma once

#include <ATen/record_function.h>
#include <c10/core/CPUAllocator.h>

#include <algorithm>
#include <cstdint>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "common/core/unit.hpp"
#include "common/optim/flat_layout.hpp"

namespace ladder::step7 {

// Which unit a storage belongs to.
using UnitOfStorage = std::map<const c10::StorageImpl*, std::size_t>;

inline UnitOfStorage units_of_storages(const std::vector<NamedTensor>& leaves,
                                       const FlatLayout& layout) {
  UnitOfStorage units;
  std::size_t unit = 0;
  for (std::size_t i = 0; i < leaves.size(); ++i) {
    const FlatUnit& place = layout.units[unit];
    if (layout.tensors[i].start >= place.start + place.numel) ++unit;
    units[leaves[i].tensor.storage().unsafeGetStorageImpl()] = unit;
  }
  return units;
}

class ParameterWatch {
 public:
  struct Read {
    std::size_t unit = 0;
    bool is_gone = false;  // its memory
  };
  using OnRead = std::function<void(const Read&)>;

  ParameterWatch(const std::vector<NamedTensor>& leaves, const FlatLayout& layout, OnRead on_read)
      : layout_(layout), units_(units_of_storages(leaves, layout)), on_read_(std::move(on_read)) {
    active_ = this;
    handle_ = at::addThreadLocalCallback(at::RecordFunctionCallback(&on_operator)
                                             .needsInputs(true)
                                             .scopes({at::RecordScope::FUNCTION}));
  }
  ~ParameterWatch() {
    at::removeCallback(handle_);
    active_ = nullptr;
  }
  ParameterWatch(const ParameterWatch&) = delete;
  ParameterWatch& operator=(const ParameterWatch&) = delete;

 private:
  static std::unique_ptr<at::ObserverContext> on_operator(const at::RecordFunction& call) {
    for (const c10::IValue& input : call.inputs()) {
      if (input.isTensor()) active_->look_at(input.toTensor());
    }
    return nullptr;
  }

  void look_at(const at::Tensor& tensor) {
    if (!tensor.defined() || !tensor.has_storage()) return;
    const c10::Storage& storage = tensor.storage();
    const auto found = units_.find(storage.unsafeGetStorageImpl());
    if (found == units_.end()) return;
    const bool is_gone = storage.nbytes() == 0;
    if (is_gone) fill_with_nan(storage, layout_.units[found->second].numel);
    on_read_({found->second, is_gone});
  }

  static void fill_with_nan(const c10::Storage& storage, std::int64_t numel) {
    const std::size_t num_bytes = static_cast<std::size_t>(numel) * sizeof(float);
    storage.set_data_ptr_noswap(c10::GetCPUAllocator()->allocate(num_bytes));
    storage.set_nbytes(num_bytes);
    std::fill_n(static_cast<float*>(storage.mutable_data()), numel,
                std::numeric_limits<float>::quiet_NaN());
  }

  static inline thread_local ParameterWatch* active_ = nullptr;

  FlatLayout layout_;
  UnitOfStorage units_;
  OnRead on_read_;
  at::CallbackHandle handle_ = 0;
};

}  // namespace ladder::step7
