// Linear attention: for each batch and head a state S [qk_size][v_size], one token after the other,
//   S *= e^g (gated);  u = v, or beta (v - S^T k) (delta);  S += k u^T;  o = scale q^T S.
// g is one number per head or one per row of S. Heads of Q share the states of K and V in groups.
//
// Operands, f32: q, k, v [batch][length][heads][size]; past state, decay, beta (each may be null); out; present state.
// A unit is one state, which is kept in its part of the present state. Scratch: v_size floats.
#pragma once
#include <cstdint>

#include "kernels/abi.h"

namespace ingot {

struct LinearAttentionParams {
  int64_t gated, delta;
  int64_t length, q_heads, kv_heads, qk_size, v_size;
  int64_t decay_size;  // numbers per head and token: 1 or qk_size
  int64_t beta_heads;  // kv_heads or 1
  double scale;
};

INGOT_KERNEL(ingot_linear_attention);

}  // namespace ingot
