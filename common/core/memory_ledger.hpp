// The ledger: who holds how many bytes of tensor memory, to the byte.
//
// install_memory_ledger() puts it in front of libtorch's CPU allocator. From then on every tensor is
// counted under the category of the innermost MemoryScope of the thread that allocates it, and
// taken off the same category when it is freed, wherever that happens. What no scope names counts
// as an activation: it should be gone when a step ends.
//
// The ledger is the one thing in Ladder that is global, because libtorch's allocator is.
// Threads: all functions may be called from any thread; a scope belongs to the thread that opens it.
// Units:   bytes as asked for by libtorch, without the allocator's own header and rounding.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <string>

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

struct MemoryReading {
  std::array<std::int64_t, kNumMemoryCategories> live_bytes{};  // by category, now
  std::int64_t total_live_bytes = 0;
  std::int64_t peak_bytes = 0;  // largest total since reset_memory_peaks()
  std::array<std::int64_t, kNumMemoryCategories> peak_bytes_by_category{};  // each for itself
  // kOther by the name of its scope; names with 0 bytes are left out.
  std::map<std::string, std::int64_t> other_bytes;

  std::int64_t live(MemoryCategory category) const {
    return live_bytes[static_cast<std::size_t>(category)];
  }
  // Of kOther not kept: its names are counted one by one.
  std::int64_t peak(MemoryCategory category) const {
    return peak_bytes_by_category[static_cast<std::size_t>(category)];
  }
};

// Starts counting. Call it once, before the first tensor; later calls do nothing.
void install_memory_ledger();
bool memory_ledger_is_installed();

MemoryReading read_memory();
void reset_memory_peaks();  // peaks start again from what is live now

// From here on an allocation that would bring the total above this many bytes throws CheckError,
// naming both and the category; 0: no cap. It plays a device with less memory.
void set_memory_cap(std::int64_t bytes);

// While it lives, allocations of this thread count under `category`. Scopes nest; the innermost
// counts. `name` is required for kOther and stands in the report.
class MemoryScope {
 public:
  explicit MemoryScope(MemoryCategory category, const char* name = "");
  ~MemoryScope();
  MemoryScope(const MemoryScope&) = delete;
  MemoryScope& operator=(const MemoryScope&) = delete;

 private:
  int previous_;
};

// "12.3 MiB", "512 B": for messages; reports carry plain numbers of bytes.
std::string format_bytes(std::int64_t bytes);

}  // namespace ladder
