// What becomes of sums of integers: the epilogue and the store.
#pragma once
#include "kernels/hooks.h"
#include "kernels/integer.h"

namespace ingot::kernel {

// Results that are bytes are narrowed and stored for several vectors at once.
enum ResultBytes : int64_t { kNoBytes = 0, kUnsignedBytes = 1, kSignedBytes = 2 };

// Results of one call, and the operands of its epilogue.
struct SumsTarget {
  void* out;
  void* const* extra;
  const EpilogueOperand* strides;
  const ExprProgram* program;
  int64_t bytes;  // ResultBytes
};

// `lanes` sums of a row, of columns from `column` on, whose results are stored from element `at` on.
INGOT_INLINE void store_sums(const SumsTarget& t, VI sums, int64_t at, int64_t row, int64_t column, int64_t lanes) {
  ingot_hook_store(sums, t.out, at, t.extra, t.strides, row, column, lanes, t.program);
}

// The same for NV whole vectors side by side.
template <int NV>
INGOT_INLINE void store_sums(const SumsTarget& t, const VI (&sums)[NV], int64_t at, int64_t row, int64_t column) {
#if defined(INGOT_NATIVE)
  int32_t together[NV * kLanes];
  INGOT_UNROLL for (int j = 0; j < NV; j++) store(together + j * kLanes, sums[j]);
  interpret_sums(together, NV * kLanes, t.out, at, t.extra, t.strides, row, column, t.program);
#else
  // Bytes: four vectors at a time.
  INGOT_UNROLL for (int first = 0; first < NV; first += 4) {
    const int vectors = NV - first < 4 ? NV - first : 4;
    if (vectors > 1 && t.bytes != kNoBytes) {
      VI wide[4] = {};
      INGOT_UNROLL for (int j = 0; j < vectors; j++) wide[j] =
          ingot_hook_bytes(sums[first + j], t.extra, t.strides, row, column + (first + j) * kLanes, kLanes, t.program);
      const Bytes bytes = as_bytes(wide, t.bytes == kSignedBytes);
      __builtin_memcpy(static_cast<uint8_t*>(t.out) + at + first * kLanes, &bytes, size_t(vectors * kLanes));
      continue;
    }
    INGOT_UNROLL for (int j = first; j < first + vectors; j++)
        store_sums(t, sums[j], at + j * kLanes, row, column + j * kLanes, kLanes);
  }
#endif
}

}  // namespace ingot::kernel
