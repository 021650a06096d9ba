#include "base/hash.h"

#include <fmt/format.h>

#include <new>

#define XXH_INLINE_ALL
#include <xxhash.h>

namespace ingot {

uint64_t hash64(std::span<const std::byte> bytes) { return XXH3_64bits(bytes.data(), bytes.size()); }

std::string hash64_hex(std::span<const std::byte> bytes) { return fmt::format("{:016x}", hash64(bytes)); }

HashStream::HashStream() : state_(XXH3_createState()) {
  if (!state_) throw std::bad_alloc();
  XXH3_64bits_reset(static_cast<XXH3_state_t*>(state_));
}
HashStream::~HashStream() { XXH3_freeState(static_cast<XXH3_state_t*>(state_)); }
void HashStream::add(std::span<const std::byte> bytes) {
  XXH3_64bits_update(static_cast<XXH3_state_t*>(state_), bytes.data(), bytes.size());
}
std::string HashStream::hex() const {
  return fmt::format("{:016x}", XXH3_64bits_digest(static_cast<const XXH3_state_t*>(state_)));
}

std::string hash128_hex(std::span<const std::byte> bytes) {
  const XXH128_hash_t h = XXH3_128bits(bytes.data(), bytes.size());
  return fmt::format("{:016x}{:016x}", h.high64, h.low64);
}

}  // namespace ingot
