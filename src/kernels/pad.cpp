#include "kernels/pad.h"

#include "kernels/abi.h"
#include "kernels/element.h"

namespace ingot::kernel {
namespace {

// f(j) of the header; -1 where the constant stands.
INGOT_INLINE int64_t source_index(int64_t j, int64_t kept, int64_t mode) {
  if (j >= 0 && j < kept) return j;
  switch (mode) {
    case kPadReflect: {
      const int64_t period = 2 * (kept - 1);
      if (period == 0) return 0;
      j = ((j % period) + period) % period;
      return j < kept ? j : period - j;
    }
    case kPadEdge:
      return j < 0 ? 0 : kept - 1;
    case kPadWrap:
      return ((j % kept) + kept) % kept;
    default:
      return -1;
  }
}

template <class T>
INGOT_INLINE T flipped(T value, int64_t flip) {
  if constexpr (sizeof(T) == 1) {
    uint8_t byte;
    __builtin_memcpy(&byte, &value, 1);
    byte = uint8_t(byte ^ flip);
    __builtin_memcpy(&value, &byte, 1);
  }
  return value;
}

template <class T>
INGOT_INLINE void pad_side(T* out, const T* in, int64_t from, int64_t to, const PadParams& p, int last, T constant) {
  if (p.mode == kPadConstant) {
    for (int64_t i = from; i < to; i++) out[i] = constant;
    return;
  }
  for (int64_t i = from; i < to; i++) {
    const int64_t j = source_index(i - p.before[last], p.kept[last], p.mode);
    out[i] = j < 0 ? constant : flipped(in[j], p.flip);
  }
}

template <class T>
INGOT_INLINE void copy_kept(T* out, const T* in, int64_t n, const PadParams& p) {
  if (p.flip == 0) return copy_bytes(out, in, n * p.size);
  for (int64_t i = 0; i < n; i++) out[i] = flipped(in[i], p.flip);
}

template <class T>
INGOT_INLINE void pad_rows(const KernelCall* call, const PadParams& p) {
  const T* in = static_cast<const T*>(call->operand[0]) + p.offset;
  const T constant = flipped(call->operand[1] ? *static_cast<const T*>(call->operand[1]) : T{}, p.flip);
  const int last = static_cast<int>(p.rank) - 1;
  const int64_t n = p.dims[last], before = p.before[last], end = before + p.kept[last];
  for (int64_t row = call->begin; row < call->end; row++) {
    T* out = static_cast<T*>(call->operand[2]) + row * n;
    int64_t at = 0, rest = row;
    bool inside = true;
    for (int d = last - 1; d >= 0; d--) {
      const int64_t j = source_index(rest % p.dims[d] - p.before[d], p.kept[d], p.mode);
      rest /= p.dims[d];
      inside &= j >= 0;
      at += j * p.stride[d];
    }
    if (!inside) {
      for (int64_t i = 0; i < n; i++) out[i] = constant;
      continue;
    }
    pad_side(out, in + at, 0, before, p, last, constant);
    copy_kept(out + before, in + at, p.kept[last], p);
    pad_side(out, in + at, end, n, p, last, constant);
  }
}

}  // namespace

extern "C" KernelStatus ingot_pad(const KernelCall* call) {
  const auto& p = *reinterpret_cast<const PadParams*>(call->param);
  with_element_size(p.size, [&]<class T>() { pad_rows<T>(call, p); });
  return kOk;
}

}  // namespace ingot::kernel
