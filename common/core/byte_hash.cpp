#include "common/core/byte_hash.hpp"

#define XXH_INLINE_ALL
#include <xxhash.h>

#include <cstdio>

namespace ladder {

ByteHash::ByteHash()
    : state_(XXH3_createState(),
             [](void* state) { XXH3_freeState(static_cast<XXH3_state_t*>(state)); }) {
  XXH3_128bits_reset(static_cast<XXH3_state_t*>(state_.get()));
}

void ByteHash::update(const void* bytes, std::size_t num_bytes) {
  XXH3_128bits_update(static_cast<XXH3_state_t*>(state_.get()), bytes, num_bytes);
}

std::string ByteHash::digest() const {
  const XXH128_hash_t hash = XXH3_128bits_digest(static_cast<const XXH3_state_t*>(state_.get()));
  char text[33];
  std::snprintf(text, sizeof text, "%016llx%016llx", static_cast<unsigned long long>(hash.high64),
                static_cast<unsigned long long>(hash.low64));
  return text;
}

}  // namespace ladder
