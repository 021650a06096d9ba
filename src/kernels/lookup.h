// Lookup: y = values[i] where keys[i] = x, and the last value where no key is x. Keys ascend, NaN is the last and
// equals every NaN; of equal keys the last counts. Strict: an x that is no key is an error. Operands: x, keys [n] (i64
// or f64), values [n + 1], y. A unit is kLookupChunk elements.
#pragma once
#include <cstdint>

#include "kernels/abi.h"

namespace ingot {

inline constexpr int64_t kLookupChunk = 1024;

struct LookupParams {
  int64_t x_type;        // DType
  int64_t integer_keys;  // keys are i64
  int64_t value_bytes;
  int64_t strict;
  int64_t keys, count;
};

INGOT_KERNEL(ingot_lookup);

}  // namespace ingot
