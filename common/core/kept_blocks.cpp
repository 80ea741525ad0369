#include "common/core/kept_blocks.hpp"

#include <algorithm>

namespace ladder {

void* KeptBlocks::take(std::size_t bytes) {
  const std::lock_guard lock(mutex_);
  const auto found = std::find_if(blocks_.rbegin(), blocks_.rend(),
                                  [=](const Block& block) { return block.bytes == bytes; });
  if (found == blocks_.rend()) return nullptr;
  void* const data = found->data;
  blocks_.erase(std::next(found).base());
  bytes_ -= static_cast<std::int64_t>(bytes);
  return data;
}

void KeptBlocks::keep(void* block, std::size_t bytes) {
  const std::lock_guard lock(mutex_);
  blocks_.push_back({block, bytes});
  bytes_ += static_cast<std::int64_t>(bytes);
}

void KeptBlocks::shrink(std::int64_t most_bytes) {
  const std::lock_guard lock(mutex_);
  auto end = blocks_.begin();
  for (; end != blocks_.end() && bytes() > most_bytes; ++end) {
    free_(end->data);
    bytes_ -= static_cast<std::int64_t>(end->bytes);
  }
  blocks_.erase(blocks_.begin(), end);
}

}  // namespace ladder
