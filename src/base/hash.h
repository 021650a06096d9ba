// XXH3: fast, not cryptographic. Finds damage and equal contents; proves nothing about intent.
#pragma once
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

namespace ingot {

uint64_t hash64(std::span<const std::byte>);
std::string hash64_hex(std::span<const std::byte>);   // 16 digits
std::string hash128_hex(std::span<const std::byte>);  // 32 digits: names of cache entries

}  // namespace ingot
