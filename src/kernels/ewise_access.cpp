// Typed loads and stores for hooks: what the codegen calls around the operators of an expression. F16 and BF16 are
// widened to F32 on the way in and rounded on the way out. All arguments but the vector are constants or addresses, so
// that one IR signature serves all types: the vector is passed through memory, which inlining removes.
#include "kernels/ewise_rows.h"
#include "kernels/half.h"
#include "kernels/hooks.h"

namespace ingot::kernel {
namespace {

// kind 0: one element for all lanes; 1: contiguous; otherwise `step` elements apart.
template <class T>
INGOT_INLINE Vec<T> load_lanes(const T* base, int64_t i, int64_t lanes, int64_t kind, int64_t step) {
  if (kind == 0) return Vec<T>(*base);
  if (kind == 1) return load_partial(base + i, lanes);
  Vec<T> v = Vec<T>(T(0));
  for (int64_t l = 0; l < kLanes; l++)
    if (l < lanes) v[l] = base[(i + l) * step];
  return v;
}

template <class T>
INGOT_INLINE void store_lanes(T* base, int64_t i, int64_t lanes, int64_t kind, int64_t step, Vec<T> v) {
  if (kind == 1) return store_partial(base + i, v, lanes);
  for (int64_t l = 0; l < kLanes; l++)
    if (l < lanes) base[(i + l) * step] = v[l];
}

}  // namespace

#define INGOT_ACCESS(NAME, T)                                                                                          \
  extern "C" void ingot_load_##NAME(const void* base, int64_t offset, int64_t i, int64_t lanes, int64_t kind,          \
                                    int64_t step, Vec<T>* out) {                                                       \
    *out = load_lanes(static_cast<const T*>(base) + offset, i, lanes, kind, step);                                     \
  }                                                                                                                    \
  extern "C" void ingot_store_##NAME(void* base, int64_t offset, int64_t i, int64_t lanes, int64_t kind, int64_t step, \
                                     const Vec<T>* in) {                                                               \
    store_lanes(static_cast<T*>(base) + offset, i, lanes, kind, step, *in);                                            \
  }
INGOT_ACCESS(f32, float)
INGOT_ACCESS(f64, double)
INGOT_ACCESS(i8, int8_t)
INGOT_ACCESS(i16, int16_t)
INGOT_ACCESS(i32, int32_t)
INGOT_ACCESS(i64, int64_t)
INGOT_ACCESS(u8, uint8_t)
INGOT_ACCESS(u16, uint16_t)
INGOT_ACCESS(u32, uint32_t)
INGOT_ACCESS(u64, uint64_t)
INGOT_ACCESS(bool, uint8_t)

#define INGOT_HALF_ACCESS(NAME, WIDEN, NARROW)                                                                         \
  extern "C" void ingot_load_##NAME(const void* base, int64_t offset, int64_t i, int64_t lanes, int64_t kind,          \
                                    int64_t step, VF* out) {                                                           \
    *out = WIDEN(load_lanes(static_cast<const uint16_t*>(base) + offset, i, lanes, kind, step));                       \
  }                                                                                                                    \
  extern "C" void ingot_store_##NAME(void* base, int64_t offset, int64_t i, int64_t lanes, int64_t kind, int64_t step, \
                                     const VF* in) {                                                                   \
    store_lanes(static_cast<uint16_t*>(base) + offset, i, lanes, kind, step, NARROW(*in));                             \
  }
INGOT_HALF_ACCESS(f16, f16_to_f32, f32_to_f16)
INGOT_HALF_ACCESS(bf16, bf16_to_f32, f32_to_bf16)

// Bytes as wide as the sums they were made of, for ingot_hook_bytes: those at hand, and those quantized here.
#define INGOT_WIDE(NAME, T)                                                                                  \
  extern "C" void ingot_widen_##NAME(const Vec<T>* in, VI* out) { *out = __builtin_convertvector(*in, VI); } \
  extern "C" void ingot_wide_quantize_##NAME##_f32(const VF* x, const VF* zero, VI* out) {                   \
    *out = quantize<T, float>(*x, *zero);                                                                    \
  }                                                                                                          \
  extern "C" void ingot_saturated_quantize_##NAME##_f32(const VF* x, const VF* zero, VI* out) {              \
    *out = quantize_to_saturate<T>(*x, *zero);                                                               \
  }                                                                                                          \
  extern "C" void ingot_wide_quantize_##NAME##_f64(const VD* x, const VD* zero, VI* out) {                   \
    *out = quantize<T, double>(*x, *zero);                                                                   \
  }
INGOT_WIDE(u8, uint8_t)
INGOT_WIDE(i8, int8_t)

}  // namespace ingot::kernel
