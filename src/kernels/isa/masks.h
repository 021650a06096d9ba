// The first lanes of a vector of 4-byte elements, loaded and stored by masks (AVX2; AVX-512 has registers for masks).
#pragma once
#include <cstdint>

#include "kernels/isa/lanes.h"

#if defined(__AVX2__) && !defined(__AVX512F__)
#define INGOT_MASKED_LANES

namespace ingot::kernel {

using MaskedFloats = float __attribute__((vector_size(32)));
using MaskedInts = int32_t __attribute__((vector_size(32)));

// Ones in the first n lanes. Read from memory at an address that LLVM does not know: compared with the numbers of the
// lanes, n would need a constant vector, for which a loop around a register tile has no register left.
inline __attribute__((always_inline)) MaskedInts first_lanes(int64_t n) {
  alignas(64) static constexpr int32_t kOnesThenZeros[2 * kLanes] = {-1, -1, -1, -1, -1, -1, -1, -1};
  const int32_t* at = kOnesThenZeros + kLanes - (n < 0 ? 0 : n);
  asm("" : "+r"(at));
  MaskedInts mask;
  __builtin_memcpy(&mask, at, sizeof mask);
  return mask;
}
inline __attribute__((always_inline)) MaskedFloats load_lanes(const void* p, MaskedInts mask) {
  return __builtin_ia32_maskloadps256(static_cast<const MaskedFloats*>(p), mask);
}
inline __attribute__((always_inline)) void store_lanes(void* p, MaskedInts mask, MaskedFloats v) {
  __builtin_ia32_maskstoreps256(static_cast<MaskedFloats*>(p), mask, v);
}

}  // namespace ingot::kernel
#endif
