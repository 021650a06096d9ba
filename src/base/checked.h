// Arithmetic on sizes that come from files and callers: overflow is an error, never a wrap.
#pragma once
#include <cstdint>

#include "base/error.h"

namespace ingot {

inline int64_t checked_mul(int64_t a, int64_t b) {
  int64_t r;
  if (__builtin_mul_overflow(a, b, &r)) invalid_model("a size overflows 64 bits: {} * {}", a, b);
  return r;
}
inline int64_t checked_add(int64_t a, int64_t b) {
  int64_t r;
  if (__builtin_add_overflow(a, b, &r)) invalid_model("a size overflows 64 bits: {} + {}", a, b);
  return r;
}
// Is [offset, offset+size) inside [0, total)?
inline bool range_inside(int64_t offset, int64_t size, int64_t total) {
  return offset >= 0 && size >= 0 && offset <= total && size <= total - offset;
}

}  // namespace ingot
