#include "kernels/move.h"

#include <utility>

#include "kernels/abi.h"
#include "kernels/element.h"

namespace ingot::kernel {
namespace {

// A walk over the outer dims of a copy, in row-major order, keeping both offsets.
struct Walk {
  const CopyParams& p;
  int outer;  // dims [0, outer) are walked
  int skip;   // except this one
  int64_t index[kMaxCopyRank];
  int64_t src, dst;

  __attribute__((always_inline)) Walk(const CopyParams& params, int outer_dims, int skipped, int64_t position)
      : p(params), outer(outer_dims), skip(skipped), src(params.src_offset), dst(params.dst_offset) {
    for (int d = outer - 1; d >= 0; d--) {
      index[d] = 0;
      if (d == skip) continue;
      index[d] = position % p.dims[d];
      position /= p.dims[d];
      src += index[d] * p.src_stride[d];
      dst += index[d] * p.dst_stride[d];
    }
  }
  __attribute__((always_inline)) void next() {
    for (int d = outer - 1; d >= 0; d--) {
      if (d == skip) continue;
      src += p.src_stride[d];
      dst += p.dst_stride[d];
      if (++index[d] < p.dims[d]) return;
      src -= p.src_stride[d] * p.dims[d];
      dst -= p.dst_stride[d] * p.dims[d];
      index[d] = 0;
    }
  }
};

// memcpy past the caches.
INGOT_INLINE void stream_bytes(void* to, const void* from, int64_t bytes) {
  constexpr int64_t kLine = 64;
  using Part = uint8_t __attribute__((ext_vector_type(16)));
  auto* dst = static_cast<char*>(to);
  const auto* src = static_cast<const char*>(from);
  const int64_t to_line = -reinterpret_cast<intptr_t>(dst) & (kLine - 1), head = bytes < to_line ? bytes : to_line;
  const int64_t lines = (bytes - head) / kLine;
  copy_bytes(dst, src, head);
  dst += head;
  src += head;
  for (int64_t i = 0; i < lines; i++, dst += kLine, src += kLine)
    INGOT_UNROLL for (int64_t part = 0; part < kLine; part += sizeof(Part)) {
      Part x;
      __builtin_memcpy(&x, src + part, sizeof x);
      __builtin_nontemporal_store(x, reinterpret_cast<Part*>(dst + part));
    }
  copy_bytes(dst, src, bytes - head - lines * kLine);
}

template <class T>
INGOT_INLINE void copy_row(T* dst, const T* src, int64_t n, int64_t dst_stride, int64_t src_stride, bool stream) {
  if (dst_stride == 1 && src_stride == 1) {
    const int64_t bytes = n * static_cast<int64_t>(sizeof(T));
    stream ? stream_bytes(dst, src, bytes) : copy_bytes(dst, src, bytes);
  } else if (dst_stride == 1 && src_stride == 0) {
    const T x = *src;
    for (int64_t i = 0; i < n; i++) dst[i] = x;
  } else {
    for (int64_t i = 0; i < n; i++) dst[i * dst_stride] = src[i * src_stride];
  }
}

template <class T>
INGOT_INLINE void copy_rows(const KernelCall* call, const CopyParams& p) {
  const T* src = static_cast<const T*>(call->operand[0]);
  T* dst = static_cast<T*>(call->operand[1]);
  const int inner = static_cast<int>(p.rank) - 1;
  const int64_t n = p.dims[inner], src_stride = p.src_stride[inner], dst_stride = p.dst_stride[inner];
  int64_t rows = 1;
  for (int d = 0; d < inner; d++) rows *= p.dims[d];
  Walk walk(p, inner, -1, call->begin % rows);
  for (int64_t unit = call->begin; unit < call->end; unit++, walk.next()) {  // after the last row comes the first
    const int64_t piece = unit / rows, from = n * piece / p.pieces, to = n * (piece + 1) / p.pieces;
    copy_row(dst + walk.dst + from * dst_stride, src + walk.src + from * src_stride, to - from, dst_stride, src_stride,
             p.stream);
  }
  if (p.stream) __builtin_ia32_sfence();
}

// Transposes a square of 16 bytes a side: log2(n) rounds of a perfect shuffle of the rows.
//   rows'[2i] = low halves of rows i and i+n/2 interleaved, rows'[2i+1] = high halves.
template <class U>
struct Square {
  static constexpr int n = 16 / static_cast<int>(sizeof(U));
  using Row = U __attribute__((ext_vector_type(n)));

  template <int... I>
  static __attribute__((always_inline)) Row low(Row a, Row b, std::integer_sequence<int, I...>) {
    return __builtin_shufflevector(a, b, ((I & 1) * n + I / 2)...);
  }
  template <int... I>
  static __attribute__((always_inline)) Row high(Row a, Row b, std::integer_sequence<int, I...>) {
    return __builtin_shufflevector(a, b, ((I & 1) * n + n / 2 + I / 2)...);
  }
  static __attribute__((always_inline)) void transpose(const Raw<U>* src, int64_t src_stride, Raw<U>* dst,
                                                       int64_t dst_stride) {
    using Sequence = std::make_integer_sequence<int, n>;
    Row rows[n], next[n];
    INGOT_UNROLL for (int i = 0; i < n; i++) __builtin_memcpy(&rows[i], src + i * src_stride, 16);
    INGOT_UNROLL for (int round = 1; round < n; round *= 2) {
      INGOT_UNROLL for (int i = 0; i < n / 2; i++) {
        next[2 * i] = low(rows[i], rows[i + n / 2], Sequence());
        next[2 * i + 1] = high(rows[i], rows[i + n / 2], Sequence());
      }
      INGOT_UNROLL for (int i = 0; i < n; i++) rows[i] = next[i];
    }
    INGOT_UNROLL for (int i = 0; i < n; i++) __builtin_memcpy(dst + i * dst_stride, &rows[i], 16);
  }
};

// dst[a * dst_stride + b] = src[b * src_stride + a] for a < na, b < nb.
template <class U>
INGOT_INLINE void transpose_strip(const Raw<U>* src, int64_t src_stride, Raw<U>* dst, int64_t dst_stride, int64_t na,
                                  int64_t nb) {
  constexpr int n = Square<U>::n;
  const int64_t whole_a = na / n * n, whole_b = nb / n * n;
  for (int64_t b = 0; b < whole_b; b += n) {
    for (int64_t a = 0; a < whole_a; a += n)
      Square<U>::transpose(src + b * src_stride + a, src_stride, dst + a * dst_stride + b, dst_stride);
    for (int64_t a = whole_a; a < na; a++)
      for (int i = 0; i < n; i++) dst[a * dst_stride + b + i] = src[(b + i) * src_stride + a];
  }
  for (int64_t b = whole_b; b < nb; b++)
    for (int64_t a = 0; a < na; a++) dst[a * dst_stride + b] = src[b * src_stride + a];
}

template <class U>
INGOT_INLINE void transpose_units(const KernelCall* call, const CopyParams& p) {
  constexpr int64_t strip = kTransposeStrip / static_cast<int64_t>(sizeof(U));
  const auto* src = static_cast<const Raw<U>*>(call->operand[0]);
  auto* dst = static_cast<Raw<U>*>(call->operand[1]);
  const int inner = static_cast<int>(p.rank) - 1, fast = static_cast<int>(p.fast);
  const int64_t na = p.dims[fast], strips = (na + strip - 1) / strip;
  Walk walk(p, inner, fast, call->begin / strips);
  for (int64_t unit = call->begin; unit < call->end; unit++) {
    const int64_t a = unit % strips * strip, left = na - a;
    transpose_strip<U>(src + walk.src + a, p.src_stride[inner], dst + walk.dst + a * p.dst_stride[fast],
                       p.dst_stride[fast], left < strip ? left : strip, p.dims[inner]);
    if (unit % strips == strips - 1) walk.next();
  }
}

}  // namespace

extern "C" KernelStatus ingot_copy(const KernelCall* call) {
  const auto& p = *reinterpret_cast<const CopyParams*>(call->param);
  with_element_size(p.size, [&]<class T>() { copy_rows<T>(call, p); });
  return kOk;
}

extern "C" KernelStatus ingot_transpose(const KernelCall* call) {
  const auto& p = *reinterpret_cast<const CopyParams*>(call->param);
  switch (p.size) {
    case 1:
      transpose_units<uint8_t>(call, p);
      break;
    case 2:
      transpose_units<uint16_t>(call, p);
      break;
    case 4:
      transpose_units<uint32_t>(call, p);
      break;
    default:
      transpose_units<uint64_t>(call, p);
      break;
  }
  return kOk;
}

}  // namespace ingot::kernel
