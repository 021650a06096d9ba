#include "kernels/reduce.h"

#include <type_traits>

#include "base/dtype.h"
#include "kernels/abi.h"
#include "kernels/reduce_ops.h"

namespace ingot::kernel {
namespace {

constexpr int64_t kRowBlock = 4096;    // elements of a row summed before going to double
constexpr int64_t kColumnBlock = 128;  // rows summed before going to double

// A walk over all but the last of the reduced dims.
struct Walk {
  const ReduceParams& p;
  int64_t index[kReduceMaxRank];
  int64_t offset;
  __attribute__((always_inline)) explicit Walk(const ReduceParams& params) : p(params), index{}, offset(0) {}
  // Whether there is a next position.
  __attribute__((always_inline)) bool next() {
    for (int64_t d = p.reduced_rank - 2; d >= 0; d--) {
      offset += p.reduced_strides[d];
      if (++index[d] < p.reduced_dims[d]) return true;
      offset -= p.reduced_strides[d] * p.reduced_dims[d];
      index[d] = 0;
    }
    return false;
  }
};

INGOT_INLINE int64_t kept_offset(const ReduceParams& p, int64_t rank, int64_t index) {
  int64_t offset = 0;
  for (int64_t d = rank - 1; d >= 0; d--) {
    offset += index % p.kept_dims[d] * p.kept_strides[d];
    index /= p.kept_dims[d];
  }
  return offset;
}

template <class T>
INGOT_INLINE T finish(const ReduceParams& p, Wide<T> r) {
  if constexpr (kIsFloat<T>) {
    if (p.kind == kReduceMean) r = r / Wide<T>(p.count);
    if (p.post == kPostSqrt) r = __builtin_sqrt(r);
    if (p.post == kPostLog) r = __builtin_log(r);
  } else {
    if (p.kind == kReduceMean) r = p.count ? T(r / T(p.count)) : T(0);
    if (p.post == kPostSqrt) r = T(__builtin_sqrt(double(r)));
    if (p.post == kPostLog) r = T(__builtin_log(double(r)));
  }
  return T(r);
}

// One result, the last dim reduced.
template <int K, int P, class T>
INGOT_INLINE Wide<T> reduce_one(const ReduceParams& p, const T* x, T shift) {
  const int64_t n = p.reduced_rank ? p.reduced_dims[p.reduced_rank - 1] : 1;
  constexpr bool sum = K == kReduceSum;
  Wide<T> r = Wide<T>(identity<K, T>());
  if (p.count == 0) return r;
  Walk walk(p);
  do {
    const T* row = x + walk.offset;
    for (int64_t i = 0; i < n; i += sum ? kRowBlock : n) {
      const int64_t len = sum && n - i > kRowBlock ? kRowBlock : n - i;
      r = combine<K, Wide<T>>(r, Wide<T>(reduce_block<K, P, T>(row + i, len, Vec<T>(shift))));
    }
  } while (walk.next());
  return r;
}

// NV vectors of neighbouring results, the last dim kept; `lanes` of a single vector.
template <int K, int P, class T, int NV>
INGOT_INLINE void reduce_columns(const ReduceParams& p, const T* x, int64_t lanes, const Vec<T> (&shift)[NV],
                                 Vec<Wide<T>> (&total)[NV]) {
  using VW = Vec<Wide<T>>;
  INGOT_UNROLL for (int j = 0; j < NV; j++) total[j] = VW(Wide<T>(identity<K, T>()));
  if (p.count == 0) return;
  const int64_t n = p.reduced_rank ? p.reduced_dims[p.reduced_rank - 1] : 1;
  const int64_t stride = p.reduced_rank ? p.reduced_strides[p.reduced_rank - 1] : 0;
  Walk walk(p);
  do {
    for (int64_t i = 0; i < n; i += kColumnBlock) {
      const int64_t end = n - i > kColumnBlock ? i + kColumnBlock : n;
      Vec<T> acc[NV];
      INGOT_UNROLL for (int j = 0; j < NV; j++) acc[j] = Vec<T>(identity<K, T>());
      for (int64_t r = i; r < end; r++) {
        const T* row = x + walk.offset + r * stride;
        INGOT_UNROLL for (int j = 0; j < NV; j++) {
          Vec<T> v = NV > 1 ? load(row + j * kLanes) : load_partial(row, lanes);
          acc[j] = combine<K>(acc[j], pre<P, T>(v, shift[j]));
        }
      }
      INGOT_UNROLL for (int j = 0; j < NV; j++) total[j] = combine<K>(total[j], __builtin_convertvector(acc[j], VW));
    }
  } while (walk.next());
}

// log sum exp x = m + log sum exp(x - m), m = max x: no term overflows. An infinite m is left out.
template <class T>
INGOT_INLINE T finite_shift(T m) {
  return m - m == T(0) ? m : T(0);
}

template <int K, int P, class T, int NV>
void columns(const ReduceParams& p, const T* x, T* out, int64_t lanes) {
  Vec<T> shift[NV] = {};
  Vec<Wide<T>> total[NV];
  if constexpr (K == kReduceLogSumExp) {
    reduce_columns<kReduceMax, P, T, NV>(p, x, lanes, shift, total);
    INGOT_UNROLL for (int j = 0; j < NV; j++) {
      shift[j] = __builtin_convertvector(total[j], Vec<T>);
      shift[j] = shift[j] - shift[j] == T(0) ? shift[j] : Vec<T>(T(0));
    }
    reduce_columns<kReduceSum, kPreExp, T, NV>(p, x, lanes, shift, total);
  } else {
    reduce_columns<K, P, T, NV>(p, x, lanes, shift, total);
  }
  Wide<T> sums[NV * kLanes];
  T shifts[NV * kLanes];
  __builtin_memcpy(sums, total, sizeof sums);
  __builtin_memcpy(shifts, shift, sizeof shifts);
  INGOT_PLAIN_LOOP
  for (int64_t j = 0; j < lanes; j++)
    out[j] = K == kReduceLogSumExp ? T(__builtin_log(double(sums[j])) + double(shifts[j])) : finish<T>(p, sums[j]);
}

template <int K, int P, class T>
INGOT_INLINE void kept_inner(const KernelCall* call, const ReduceParams& p) {
  const T* x = static_cast<const T*>(call->operand[0]);
  T* out = static_cast<T*>(call->operand[1]);
  const int64_t width = p.kept_dims[p.kept_rank - 1], blocks = (width + kReduceColumns - 1) / kReduceColumns;
  constexpr int wide = std::is_same_v<T, float> ? 8 : 1;  // several vectors at a time only where models spend time
  for (int64_t u = call->begin; u < call->end; u++) {
    const int64_t outer = u / blocks, first = u % blocks * kReduceColumns;
    const int64_t last = first + kReduceColumns < width ? first + kReduceColumns : width;
    const T* from = x + kept_offset(p, p.kept_rank - 1, outer);
    int64_t c = first;
    for (; c + wide * kLanes <= last; c += wide * kLanes)
      columns<K, P, T, wide>(p, from + c, out + outer * width + c, wide * kLanes);
    for (; c < last; c += kLanes)
      columns<K, P, T, 1>(p, from + c, out + outer * width + c, last - c < kLanes ? last - c : kLanes);
  }
}

// Results [begin, ...) of rows of n elements that follow each other, kLanes at a time: rows shorter than a vector would
// take longer to be added up lane by lane than to be read. Returns the first result that is left.
template <int K, int P>
INGOT_INLINE int64_t short_rows(const ReduceParams& p, const float* x, float* out, int64_t n, int64_t begin,
                                int64_t end) {
  for (; begin + kLanes <= end; begin += kLanes) {
    VF acc = VF(identity<K, float>());
    for (int64_t i = 0; i < n; i++) {
      VF v;
      INGOT_UNROLL for (int j = 0; j < kLanes; j++) v[j] = x[(begin + j) * n + i];
      acc = combine<K>(acc, pre<P, float>(v, VF(0.f)));
    }
    if (p.kind != kReduceMean && p.post == kPostNone) {
      store(out + begin, acc);
    } else {
      float sums[kLanes];
      store(sums, acc);
      INGOT_PLAIN_LOOP
      for (int j = 0; j < kLanes; j++) out[begin + j] = finish<float>(p, double(sums[j]));
    }
  }
  return begin;
}

template <int K, int P, class T>
INGOT_INLINE void reduced_inner(const KernelCall* call, const ReduceParams& p) {
  T* out = static_cast<T*>(call->operand[1]);
  int64_t first = call->begin;
  if constexpr (std::is_same_v<T, float> && K != kReduceLogSumExp)
    if (p.reduced_rank == 1 && p.kept_rank == 1 && p.count > 0 && p.count < kLanes)
      first = short_rows<K, P>(p, static_cast<const float*>(call->operand[0]), out, p.count, first, call->end);
  for (int64_t u = first; u < call->end; u++) {
    const T* x = static_cast<const T*>(call->operand[0]) + kept_offset(p, p.kept_rank, u);
    if constexpr (K == kReduceLogSumExp) {
      const T m = finite_shift(T(reduce_one<kReduceMax, P, T>(p, x, T(0))));
      out[u] = T(__builtin_log(double(reduce_one<kReduceSum, kPreExp, T>(p, x, m))) + double(m));
    } else {
      out[u] = finish<T>(p, reduce_one<K, P, T>(p, x, T(0)));
    }
  }
}

template <int K, int P, class T>
INGOT_INLINE KernelStatus reduce(const KernelCall* call, const ReduceParams& p) {
  if (p.inner_kept)
    kept_inner<K, P, T>(call, p);
  else
    reduced_inner<K, P, T>(call, p);
  return kOk;
}

// One-byte types are only compared.
template <class T>
__attribute__((noinline)) KernelStatus by_kind(const KernelCall* call, const ReduceParams& p) {
  if (p.kind == kReduceMax && p.pre == kPreNone) return reduce<kReduceMax, kPreNone, T>(call, p);
  if (p.kind == kReduceMin) return reduce<kReduceMin, kPreNone, T>(call, p);
  if constexpr (sizeof(T) > 1) {
    if (p.kind == kReduceSum || p.kind == kReduceMean) {
      if (p.pre == kPreAbs) return reduce<kReduceSum, kPreAbs, T>(call, p);
      if (p.pre == kPreSquare) return reduce<kReduceSum, kPreSquare, T>(call, p);
      return reduce<kReduceSum, kPreNone, T>(call, p);
    }
    if (p.kind == kReduceProd) return reduce<kReduceProd, kPreNone, T>(call, p);
    if constexpr (kIsFloat<T>)
      if (p.kind == kReduceLogSumExp) return reduce<kReduceLogSumExp, kPreNone, T>(call, p);
  }
  return kBadValue;
}

}  // namespace

extern "C" KernelStatus ingot_reduce(const KernelCall* call) {
  const auto& p = *reinterpret_cast<const ReduceParams*>(call->param);
  switch (static_cast<DType>(p.dtype)) {
    case DType::F32:
      return by_kind<float>(call, p);
    case DType::F64:
      return by_kind<double>(call, p);
    case DType::I32:
      return by_kind<int32_t>(call, p);
    case DType::I64:
      return by_kind<int64_t>(call, p);
    case DType::U32:
      return by_kind<uint32_t>(call, p);
    case DType::U64:
      return by_kind<uint64_t>(call, p);
    case DType::I8:
      return by_kind<int8_t>(call, p);
    case DType::U8:
    case DType::Bool:
      return by_kind<uint8_t>(call, p);
    default:
      return kBadValue;
  }
}

}  // namespace ingot::kernel
