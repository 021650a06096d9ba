// Elements as raw bytes: kernels that only move data are written once for each element size, not for each type.
#pragma once
#include <cstdint>

#include "kernels/vec.h"

namespace ingot::kernel {

// Stands for any type of its size, at any address: several narrow elements are also moved as one wide one.
template <class Bits>
struct __attribute__((packed, may_alias)) Raw {
  Bits bits;
};
struct Bits128 {
  uint64_t lo, hi;
};

// Calls f.template operator()<T>() with the raw element of `size` bytes: 1, 2, 4, 8 or 16.
template <class F>
INGOT_INLINE auto with_element_size(int64_t size, F f) {
  switch (size) {
    case 1:
      return f.template operator()<Raw<uint8_t>>();
    case 2:
      return f.template operator()<Raw<uint16_t>>();
    case 4:
      return f.template operator()<Raw<uint32_t>>();
    case 8:
      return f.template operator()<Raw<uint64_t>>();
    default:
      return f.template operator()<Raw<Bits128>>();
  }
}

// memcpy that does not pay for a call when the row is short.
INGOT_INLINE void copy_bytes(void* dst, const void* src, int64_t n) {
  using Chunk = uint8_t __attribute__((ext_vector_type(16)));
  auto* d = static_cast<char*>(dst);
  auto* s = static_cast<const char*>(src);
  if (n < 16 || n > 256) {
    __builtin_memcpy(d, s, static_cast<size_t>(n));
    return;
  }
  Chunk last;
  __builtin_memcpy(&last, s + n - 16, 16);
  for (int64_t i = 0; i + 16 < n; i += 16) {
    Chunk c;
    __builtin_memcpy(&c, s + i, 16);
    __builtin_memcpy(d + i, &c, 16);
  }
  __builtin_memcpy(d + n - 16, &last, 16);
}

// A negative index counts from the back; -1 when it is out of range.
INGOT_INLINE int64_t wrap_index(int64_t i, int64_t n) {
  if (i < 0) i += n;
  return i < 0 || i >= n ? -1 : i;
}

// Index `i` of an int32 or int64 index tensor.
INGOT_INLINE int64_t index_at(const void* indices, int64_t bytes, int64_t i) {
  return bytes == 4 ? static_cast<const int32_t*>(indices)[i] : static_cast<const int64_t*>(indices)[i];
}

}  // namespace ingot::kernel
