#include "common/core/memory_ledger.hpp"

#include <c10/core/Allocator.h>
#include <c10/core/CPUAllocator.h>
#include <c10/core/impl/alloc_cpu.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstring>
#include <mutex>
#include <vector>

#include "common/core/check.hpp"
#include "common/core/kept_blocks.hpp"
#ifdef LADDER_WITH_CUDA
#include <ATen/Context.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAFunctions.h>

#include <type_traits>
#include <unordered_map>
#endif

namespace ladder {
namespace {

// Labels 0 … kNumMemoryCategories-1 are the categories themselves; all further labels are names
// under kOther.
constexpr int kMaxLabels = 64;
constexpr int kActivationsLabel = static_cast<int>(MemoryCategory::kActivations);
constexpr const char* kCategoryNames[kNumMemoryCategories] = {
    "activations", "parameters", "gradients", "optimizer state", "communication", "other tensors"};

thread_local int current_label = kActivationsLabel;

void raise_to(std::atomic<std::int64_t>& peak, std::int64_t value) {
  std::int64_t seen = peak.load(std::memory_order_relaxed);
  while (seen < value && !peak.compare_exchange_weak(seen, value, std::memory_order_relaxed)) {
  }
}

class CountingAllocator final : public c10::Allocator {
 public:
  // A header in front of each block holds its size and label: some kernels (oneDNN's) free through
  // raw_deleter and require the data pointer to be the context. Its 64 bytes preserve libtorch's
  // alignment.
  struct Header {
    std::int64_t bytes;
    int label;
  };
  static constexpr std::size_t kHeaderBytes = 64;
  static_assert(sizeof(Header) <= kHeaderBytes);

  c10::DataPtr allocate(std::size_t bytes) override {
    const c10::Device cpu(c10::DeviceType::CPU);
    if (bytes == 0) return {nullptr, nullptr, &release, cpu};
    const Header header{static_cast<std::int64_t>(bytes), current_label};
    check_cap(header);
    auto* block = static_cast<char*>(allocate_block(header));
    std::memcpy(block, &header, sizeof header);
    count(header.label, header.bytes);
    void* data = block + kHeaderBytes;
    return {data, data, &release, cpu};
  }

  c10::DeleterFnPtr raw_deleter() const override { return &release; }

  void copy_data(void* target, const void* source, std::size_t bytes) const override {
    default_copy_data(target, source, bytes);
  }

  int label_of(const std::string& name) {
    const std::lock_guard lock(names_mutex_);
    auto found = std::find(names_.begin(), names_.end(), name);
    if (found == names_.end()) {
      check(kNumMemoryCategories + names_.size() < kMaxLabels,
            "memory ledger: too many names under 'other'; the last one is '", name, "'");
      found = names_.insert(names_.end(), name);
    }
    return kNumMemoryCategories + static_cast<int>(found - names_.begin());
  }

  BytesByCategory live() const {
    BytesByCategory bytes = {};
    for (int label = 0; label < kMaxLabels; ++label)
      bytes[static_cast<std::size_t>(category_of(label))] += live_[label].load();
    return bytes;
  }

  MemoryReading read() {
    MemoryReading reading;
    reading.live_bytes = live();
    const std::lock_guard lock(names_mutex_);
    for (std::size_t i = 0; i < names_.size(); ++i) {
      const std::int64_t bytes = live_[kNumMemoryCategories + i].load();
      if (bytes != 0) reading.other_bytes[names_[i]] = bytes;
    }
    reading.total_live_bytes = total_.load();
    reading.peak_bytes = peak_.load();
    for (int label = 0; label < kNumMemoryCategories; ++label) {
      reading.peak_bytes_by_category[static_cast<std::size_t>(label)] = peaks_[label].load();
    }
    return reading;
  }

  void reset_peaks() {
    peak_ = total_.load();
    for (int label = 0; label < kMaxLabels; ++label) peaks_[label] = live_[label].load();
  }

  void set_cap(std::int64_t bytes) { cap_ = bytes; }

  // `data` is memory that allocate() has given out.
  static Header header_of(const void* data) {
    Header header;
    std::memcpy(&header, static_cast<const char*>(data) - kHeaderBytes, sizeof header);
    return header;
  }
  static MemoryCategory category_of(int label) {
    return static_cast<MemoryCategory>(std::min(label, static_cast<int>(MemoryCategory::kOther)));
  }

  void count(int label, std::int64_t bytes) {
    const std::int64_t live = live_[label].fetch_add(bytes, std::memory_order_relaxed) + bytes;
    const std::int64_t total = total_.fetch_add(bytes, std::memory_order_relaxed) + bytes;
    if (bytes < 0) return;
    raise_to(most_, total);
    raise_to(peak_, total);
    raise_to(peaks_[label], live);
  }

 private:
  static void release(void* data);

  void check_cap(const Header& header) const {
    const std::int64_t cap = cap_.load(std::memory_order_relaxed);
    if (cap == 0 || total_.load(std::memory_order_relaxed) + header.bytes <= cap) return;
    throw out_of_memory(
        header, concat("the cap is ", cap, " bytes (", format_bytes(cap), ", --memory-cap-mb)"));
  }
  // What is kept must not add to the most that was ever held.
  void* allocate_block(const Header& header) {
    const std::size_t bytes = block_bytes(header);
    if (void* const block = bytes < KeptBlocks::kLeastBytes ? nullptr : kept_.take(bytes))
      return block;
    const std::int64_t live = total_.load(std::memory_order_relaxed) + header.bytes;
    const std::int64_t room = most_.load(std::memory_order_relaxed) - live;
    if (kept_.bytes() > room) kept_.shrink(room);
    try {
      return c10::alloc_cpu(bytes);
    } catch (const c10::Error&) {  // it speaks of an allocator
      throw out_of_memory(header,
                          "this machine gives the process no more; --dry-run shows what a "
                          "run holds");
    }
  }
  static std::size_t block_bytes(const Header& header) {
    return static_cast<std::size_t>(header.bytes) + kHeaderBytes;
  }
  CheckError out_of_memory(const Header& header, const std::string& reason) const {
    return CheckError(concat("out of memory: ", header.bytes, " bytes of ",
                             to_string(category_of(header.label)), " do not fit next to the ",
                             total_.load(std::memory_order_relaxed), " already held; ", reason));
  }

  std::atomic<std::int64_t> live_[kMaxLabels] = {};
  std::atomic<std::int64_t> total_ = 0;
  std::atomic<std::int64_t> most_ = 0;  // the largest total ever
  std::atomic<std::int64_t> peak_ = 0;
  KeptBlocks kept_{[](void* block) { c10::free_cpu(block); }};
  std::atomic<std::int64_t> peaks_[kMaxLabels] = {};
  std::atomic<std::int64_t> cap_ = 0;
  std::mutex names_mutex_;
  std::vector<std::string> names_;
};

// Never destroyed: tensors that outlive main() are still freed through it.
CountingAllocator& ledger() {
  static auto* allocator = new CountingAllocator;
  return *allocator;
}

std::atomic<bool> is_installed = false;

void CountingAllocator::release(void* data) {
  if (data == nullptr) return;
  const Header header = header_of(data);
  char* const block = static_cast<char*>(data) - kHeaderBytes;
  ledger().count(header.label, -header.bytes);
  const std::size_t bytes = block_bytes(header);
  bytes < KeptBlocks::kLeastBytes ? c10::free_cpu(block) : ledger().kept_.keep(block, bytes);
}

#ifdef LADDER_WITH_CUDA

using c10::cuda::CUDACachingAllocator::attachAllocatorTraceTracker;

std::atomic<bool> is_on_gpu = false;

// What libtorch's allocator for GPUs hands out, as it was asked for: its rounding and what it keeps
// for later are not counted. It calls us on the thread that allocates or frees, under a lock of its
// own.
void count_gpu_memory() {
  struct Block {
    std::int64_t bytes;
    int label;
  };
  static auto* const mutex = new std::mutex;
  static auto* const blocks = new std::unordered_map<std::size_t, Block>;  // by address
  is_on_gpu = true;
  at::globalContext().lazyInitDevice(at::kCUDA);  // before that, there is no allocator to watch
  attachAllocatorTraceTracker([](const auto& entry) {
    using Entry = std::remove_cvref_t<decltype(entry)>;
    const std::lock_guard lock(*mutex);
    const auto address = static_cast<std::size_t>(entry.addr_);
    if (entry.action_ == Entry::ALLOC) {
      const Block block{static_cast<std::int64_t>(entry.size_), current_label};
      blocks->insert_or_assign(address, block);
      ledger().count(block.label, block.bytes);
    } else if (entry.action_ == Entry::FREE_REQUESTED) {
      const auto found = blocks->extract(address);
      if (!found.empty()) ledger().count(found.mapped().label, -found.mapped().bytes);
    }
  });
}

// Caps the current GPU alone: a cap on another would make a CUDA context there, which takes 500 MB.
// Beyond the fraction, libtorch's own error says what was asked for and what is there.
void cap_gpu_memory(std::int64_t bytes) {
  const c10::DeviceIndex device = c10::cuda::current_device();
  cudaDeviceProp properties = {};
  C10_CUDA_CHECK(cudaGetDeviceProperties(&properties, device));
  const double fraction =
      bytes == 0 ? 1 : static_cast<double>(bytes) / static_cast<double>(properties.totalGlobalMem);
  c10::cuda::CUDACachingAllocator::setMemoryFraction(std::min(fraction, 1.0), device);
}

#else

constexpr bool is_on_gpu = false;
void count_gpu_memory() {
  throw CheckError("the memory ledger: this build has no CUDA");
}
void cap_gpu_memory(std::int64_t /*bytes*/) {}

#endif

}  // namespace

void install_memory_ledger(at::DeviceType device) {
  // Ranks that are threads come here together; none goes on before the ledger is in place.
  static std::once_flag once;
  std::call_once(once, [device] {
    if (device == at::kCPU) {
      c10::SetCPUAllocator(&ledger(), /*priority=*/100);
    } else {
      count_gpu_memory();
    }
    is_installed = true;
  });
}

bool memory_ledger_is_installed() {
  return is_installed;
}

MemoryReading read_memory() {
  return ledger().read();
}

BytesByCategory live_memory() {
  return ledger().live();
}

const char* to_string(MemoryCategory category) {
  return kCategoryNames[static_cast<std::size_t>(category)];
}

std::optional<MemoryCategory> memory_category_of(const at::Tensor& tensor) {
  const c10::DataPtr& data = tensor.storage().data_ptr();
  if (data.get() == nullptr || data.get_deleter() != ledger().raw_deleter()) return std::nullopt;
  return CountingAllocator::category_of(CountingAllocator::header_of(data.get()).label);
}

void reset_memory_peaks() {
  ledger().reset_peaks();
}

void set_memory_cap(std::int64_t bytes) {
  is_on_gpu ? cap_gpu_memory(bytes) : ledger().set_cap(bytes);
}

MemoryScope::MemoryScope(MemoryCategory category, const char* name) : previous_(current_label) {
  check(category != MemoryCategory::kOther || *name != '\0',
        "memory ledger: a scope of 'other' needs a name");
  current_label =
      category == MemoryCategory::kOther ? ledger().label_of(name) : static_cast<int>(category);
}

MemoryScope::~MemoryScope() {
  current_label = previous_;
}

}  // namespace ladder
