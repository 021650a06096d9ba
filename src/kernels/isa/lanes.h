// What a vector of the build at hand holds, as base/targets.inc says.
#pragma once

namespace ingot::kernel {

#if defined(__AVX512F__)
inline constexpr int kLanes = 16, kRegisters = 32;
#elif defined(__AVX2__)
inline constexpr int kLanes = 8, kRegisters = 16;
#else
inline constexpr int kLanes = 4, kRegisters = 16;
#endif

// Between two steps of a register tile: loads of the next step stay behind this, and `last`, the sums that a step adds
// to last, are done before it. LLVM would otherwise load several steps ahead and, where accumulators fill most of many
// registers, spill sums inside the loop.
template <class V, int N>
inline __attribute__((always_inline)) void end_step(V (&last)[N]) {
  if constexpr (kRegisters == 32) {
#pragma clang loop unroll(full)
    for (int j = 0; j < N; j++) asm volatile("" : "+v"(last[j]));
    asm volatile("" ::: "memory");
  }
}

// A mask of lanes that the compiler does not know. LLVM 22 makes of a masked store that narrows its elements, with a
// constant mask of one lane, a store of the wide element: it overwrites what follows.
inline __attribute__((always_inline)) unsigned short unknown_mask(unsigned short mask) {
  asm("" : "+r"(mask));
  return mask;
}

#define INGOT_TARGET(...)
#define INGOT_BUILD(name, march, lanes, registers, ...) || (kLanes == lanes && kRegisters == registers)
static_assert(false
#include "base/targets.inc"
);
#undef INGOT_BUILD
#undef INGOT_TARGET

}  // namespace ingot::kernel
