// Large blocks of freed memory that are kept, because the next step will want them again.
//
// The kernel hands out memory zeroed and page by page, which costs a step of GPT-2's vocabulary a
// third of its time. The C library's heap would keep it, but in pieces: next to smaller blocks, a
// gap that held the logits soon is too short for them, and the heap grows to a multiple of what is
// used. A step asks for the same sizes as the last one. So blocks are kept whole, and given out for
// exactly their size.
//
// Threads: any thread may call any function.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <mutex>
#include <vector>

namespace ladder {

class KeptBlocks {
 public:
  static constexpr std::size_t kLeastBytes = 1 << 20;  // smaller ones are left to the heap

  // Frees a block that is no longer kept.
  explicit KeptBlocks(void (*free)(void* block)) : free_(free) {}

  // Takes out the block of this size that came last; null if there is none.
  void* take(std::size_t bytes) {
    const std::lock_guard lock(mutex_);
    const auto found = std::find_if(blocks_.rbegin(), blocks_.rend(),
                                    [=](const Block& block) { return block.bytes == bytes; });
    if (found == blocks_.rend()) return nullptr;
    void* const data = found->data;
    blocks_.erase(std::next(found).base());
    bytes_ -= static_cast<std::int64_t>(bytes);
    return data;
  }

  void keep(void* block, std::size_t bytes) {
    const std::lock_guard lock(mutex_);
    blocks_.push_back({block, bytes});
    bytes_ += static_cast<std::int64_t>(bytes);
  }

  // Frees those that have been kept longest until no more bytes are kept than these.
  void shrink(std::int64_t most_bytes) {
    const std::lock_guard lock(mutex_);
    auto end = blocks_.begin();
    for (; end != blocks_.end() && bytes() > most_bytes; ++end) {
      free_(end->data);
      bytes_ -= static_cast<std::int64_t>(end->bytes);
    }
    blocks_.erase(blocks_.begin(), end);
  }

  std::int64_t bytes() const { return bytes_.load(std::memory_order_relaxed); }

 private:
  struct Block {
    void* data;
    std::size_t bytes;
  };
  void (*free_)(void* block);
  std::mutex mutex_;
  std::vector<Block> blocks_;  // those kept longest come first
  std::atomic<std::int64_t> bytes_ = 0;
};

}  // namespace ladder
