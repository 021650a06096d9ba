// XXH3: fast, not cryptographic. Finds damage and equal contents; proves nothing about intent.
#pragma once
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

namespace ingot {

uint64_t hash64(std::span<const std::byte>);
std::string hash64_hex(std::span<const std::byte>);  // 16 digits
// hash64_hex of bytes that come in pieces.
class HashStream {
 public:
  HashStream();
  ~HashStream();
  HashStream(const HashStream&) = delete;
  HashStream& operator=(const HashStream&) = delete;
  void add(std::span<const std::byte>);
  std::string hex() const;

 private:
  void* state_;
};
std::string hash128_hex(std::span<const std::byte>);  // 32 digits: names of cache entries

}  // namespace ingot
