// Between two steps of a register tile of integers, as end_step of isa/lanes.h: loads of the next step stay behind
// this, and all sums are as the step left them. LLVM may change the order of such sums: it would add products to each
// other first, and have more of them than registers.
#pragma once

namespace ingot::kernel {

template <class V, int M, int N>
inline __attribute__((always_inline)) void end_integer_step(V (&sums)[M][N]) {
#pragma clang loop unroll(full)
  for (int i = 0; i < M; i++)
#pragma clang loop unroll(full)
    for (int j = 0; j < N; j++) asm volatile("" : "+v"(sums[i][j]));
  asm volatile("" ::: "memory");
}

}  // namespace ingot::kernel
