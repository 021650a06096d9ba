// y[i] = table[x[i]] for bytes. Operands: x, the table of 256, y. A unit is kTableChunk elements.
#pragma once
#include <cstdint>

#include "kernels/abi.h"

namespace ingot {

inline constexpr int64_t kTableChunk = 4096;

struct TableParams {
  int64_t count;
};

INGOT_KERNEL(ingot_table);

}  // namespace ingot
