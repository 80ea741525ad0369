// Counts how much tensor memory each category holds, to the byte.
//
// install_memory_ledger() puts the ledger in front of libtorch's allocator for one device: the CPU,
// or the GPU on which a model is trained. From then on, every tensor on that device counts under
// the category of the innermost MemoryScope of the thread that allocates it, and is taken off that
// category when it is freed, on whatever thread. Memory allocated outside any scope counts as
// activations: it should be gone when a step ends.
//
// The ledger is Ladder's only global object, because libtorch's allocator is global.
// Threads: any thread may call any function; a scope belongs to the thread that opens it.
// Units:   bytes as requested by libtorch, without the allocator's own header and rounding.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/DeviceType.h>

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "common/core/amounts.hpp"

namespace ladder {

enum class MemoryCategory {
  kActivations,
  kParameters,
  kGradients,
  kOptimizer,
  kCommunication,
  kOther
};
inline constexpr int kNumMemoryCategories = 6;

using BytesByCategory = std::array<std::int64_t, kNumMemoryCategories>;

struct MemoryReading {
  BytesByCategory live_bytes{};  // now
  std::int64_t total_live_bytes = 0;
  std::int64_t peak_bytes = 0;               // largest total since reset_memory_peaks()
  BytesByCategory peak_bytes_by_category{};  // each separately
  // The bytes of kOther, by the name of their scope; names with 0 bytes are left out.
  std::map<std::string, std::int64_t> other_bytes;

  std::int64_t live(MemoryCategory category) const {
    return live_bytes[static_cast<std::size_t>(category)];
  }
  // No peak is recorded for kOther, whose names are counted separately.
  std::int64_t peak(MemoryCategory category) const {
    return peak_bytes_by_category[static_cast<std::size_t>(category)];
  }
};

// Starts counting. Call it once, before creating the first tensor; later calls do nothing.
// Throws CheckError for a GPU in a build without CUDA.
void install_memory_ledger(at::DeviceType device = at::kCPU);
bool memory_ledger_is_installed();

MemoryReading read_memory();
BytesByCategory live_memory();  // the reading's live_bytes alone, in some 50 ns
void reset_memory_peaks();      // restarts all peaks from what is live now

// Simulates a device with less memory: from now on, an allocation that would bring the total above
// `bytes` throws CheckError, naming its size, its category and the cap. 0 means no cap. On a GPU,
// it is a cap on the current one, so choose that before; the error is libtorch's, and what its
// allocator keeps for later counts as well.
void set_memory_cap(std::int64_t bytes);

// While a scope lives, this thread's allocations count under `category`. Scopes nest; the innermost
// one applies. kOther requires a `name`, which appears in the report.
class MemoryScope {
 public:
  explicit MemoryScope(MemoryCategory category, const char* name = "");
  ~MemoryScope();
  MemoryScope(const MemoryScope&) = delete;
  MemoryScope& operator=(const MemoryScope&) = delete;

 private:
  int previous_;
};

const char* to_string(MemoryCategory category);  // "optimizer state"
// What a tensor was counted under. Nothing if it was not counted: the tensor is on a GPU, older
// than the ledger, or has no elements.
std::optional<MemoryCategory> memory_category_of(const at::Tensor& tensor);

}  // namespace ladder
