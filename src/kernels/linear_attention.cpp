#include "kernels/linear_attention.h"

#include "kernels/vmath.h"

namespace ingot::kernel {
namespace {

// y[i] += a x[i]
INGOT_INLINE void add_scaled(float* __restrict y, const float* __restrict x, float a, int64_t n) {
  for (int64_t i = 0; i < n; i++) y[i] += a * x[i];
}

INGOT_INLINE void decay(const LinearAttentionParams& p, float* state, const float* g) {
  for (int64_t d = 0; d < p.qk_size; d++) {
    const float factor = vexp(VF(g[p.decay_size == 1 ? 0 : d]))[0];
    for (int64_t i = 0; i < p.v_size; i++) state[d * p.v_size + i] *= factor;
  }
}

INGOT_INLINE void write(const LinearAttentionParams& p, float* state, const float* k, const float* v, const float* beta,
                        float* u) {
  for (int64_t i = 0; i < p.v_size; i++) u[i] = v[i];
  if (p.delta) {
    for (int64_t d = 0; d < p.qk_size; d++) add_scaled(u, state + d * p.v_size, -k[d], p.v_size);
    for (int64_t i = 0; i < p.v_size; i++) u[i] *= *beta;
  }
  for (int64_t d = 0; d < p.qk_size; d++) add_scaled(state + d * p.v_size, u, k[d], p.v_size);
}

INGOT_INLINE void read(const LinearAttentionParams& p, const float* state, const float* q, float* out) {
  for (int64_t i = 0; i < p.v_size; i++) out[i] = 0;
  for (int64_t d = 0; d < p.qk_size; d++) add_scaled(out, state + d * p.v_size, q[d], p.v_size);
  for (int64_t i = 0; i < p.v_size; i++) out[i] *= float(p.scale);
}

}  // namespace

extern "C" KernelStatus ingot_linear_attention(const KernelCall* call) {
  const auto& p = *reinterpret_cast<const LinearAttentionParams*>(call->param);
  auto in = [&](int i) { return static_cast<const float*>(call->operand[i]); };
  const int64_t group = p.q_heads / p.kv_heads, size = p.qk_size * p.v_size;
  for (int64_t unit = call->begin; unit < call->end; unit++) {
    const int64_t b = unit / p.kv_heads, h = unit % p.kv_heads;
    float *state = static_cast<float*>(call->operand[7]) + unit * size, *u = static_cast<float*>(call->scratch);
    for (int64_t i = 0; i < size; i++) state[i] = in(3) ? in(3)[unit * size + i] : 0.f;
    for (int64_t t = 0; t < p.length; t++) {
      const int64_t token = b * p.length + t, at = token * p.kv_heads + h;
      if (p.gated) decay(p, state, in(4) + at * p.decay_size);
      write(p, state, in(1) + at * p.qk_size, in(2) + at * p.v_size,
            p.delta ? in(5) + token * p.beta_heads + (p.beta_heads == 1 ? 0 : h) : nullptr, u);
      for (int64_t j = h * group; j < (h + 1) * group; j++)
        read(p, state, in(0) + (token * p.q_heads + j) * p.qk_size,
             static_cast<float*>(call->operand[6]) + (token * p.q_heads + j) * p.v_size);
    }
  }
  return kOk;
}

}  // namespace ingot::kernel
