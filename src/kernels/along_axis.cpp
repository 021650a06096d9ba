#include "kernels/along_axis.h"

#include "kernels/abi.h"
#include "kernels/number.h"

namespace ingot::kernel {
namespace {

// A block of lines: `width` of them, side by side from `offset` on.
struct Block {
  int64_t outer, column, width;
  int64_t offset;  // of element 0 of the first line

  __attribute__((always_inline)) Block(const AxisParams& a, int64_t unit) {
    const int64_t blocks = line_blocks(a.inner);
    outer = unit / blocks;
    column = unit % blocks * kLineBlock;
    width = a.inner - column < kLineBlock ? a.inner - column : kLineBlock;
    offset = outer * a.n * a.inner + column;
  }
};

template <class T>
INGOT_INLINE void cumulate(const KernelCall* call, const CumulateParams& p) {
  const int64_t n = p.axis.n, inner = p.axis.inner;
  for (int64_t unit = call->begin; unit < call->end; unit++) {
    const Block b(p.axis, unit);
    const T* in = static_cast<const T*>(call->operand[0]) + b.offset;
    T* out = static_cast<T*>(call->operand[1]) + b.offset;
    Wide<T> total[kLineBlock];
    for (int64_t c = 0; c < b.width; c++) total[c] = p.product ? 1 : 0;
    for (int64_t i = 0; i < n; i++) {
      const int64_t at = (p.reverse ? n - 1 - i : i) * inner;
      for (int64_t c = 0; c < b.width; c++) {
        const Wide<T> before = total[c], x = widen(in[at + c]);
        total[c] = static_cast<Wide<T>>(p.product ? before * x : before + x);
        out[at + c] = narrow<T>(p.exclusive ? before : total[c]);
      }
    }
  }
}

template <bool Greatest, class W>
INGOT_INLINE bool better(W a, W b) {
  return (Greatest ? a > b : a < b) || (a != a && b == b);
}

// Index of the best element of each line of the block.
template <class T, bool Greatest>
INGOT_INLINE void find_best(const T* in, const AxisParams& a, const Block& b, bool last, int64_t* index) {
  Wide<T> best[kLineBlock];
  for (int64_t c = 0; c < b.width; c++) best[c] = widen(in[c]), index[c] = 0;
  for (int64_t i = 1; i < a.n; i++) {
    const T* row = in + i * a.inner;
    for (int64_t c = 0; c < b.width; c++) {
      const Wide<T> x = widen(row[c]);
      const bool take = better<Greatest>(x, best[c]) || (last && !better<Greatest>(best[c], x));
      best[c] = take ? x : best[c];
      index[c] = take ? i : index[c];
    }
  }
}

template <class T, bool Greatest>
INGOT_INLINE void arg_best(const KernelCall* call, const ArgParams& p) {
  for (int64_t unit = call->begin; unit < call->end; unit++) {
    const Block b(p.axis, unit);
    int64_t* out = static_cast<int64_t*>(call->operand[1]) + b.outer * p.axis.inner + b.column;
    find_best<T, Greatest>(static_cast<const T*>(call->operand[0]) + b.offset, p.axis, b, p.last != 0, out);
  }
}

template <class T>
INGOT_INLINE void hardmax(const KernelCall* call, const HardmaxParams& p) {
  const T one = narrow<T>(static_cast<Wide<T>>(1)), zero = narrow<T>(static_cast<Wide<T>>(0));
  for (int64_t unit = call->begin; unit < call->end; unit++) {
    const Block b(p.axis, unit);
    int64_t best[kLineBlock];
    find_best<T, true>(static_cast<const T*>(call->operand[0]) + b.offset, p.axis, b, false, best);
    T* out = static_cast<T*>(call->operand[1]) + b.offset;
    for (int64_t i = 0; i < p.axis.n; i++)
      for (int64_t c = 0; c < b.width; c++) out[i * p.axis.inner + c] = best[c] == i ? one : zero;
  }
}

// Does element i stand before element j in the result? NaN is the greatest number.
template <class T, bool Greatest>
struct Before {
  const T* line;
  int64_t stride;
  __attribute__((always_inline)) bool operator()(int64_t i, int64_t j) const {
    const Wide<T> a = widen(line[i * stride]), b = widen(line[j * stride]);
    const bool a_nan = a != a, b_nan = b != b;
    if (a_nan != b_nan) return Greatest ? a_nan : b_nan;
    if (Greatest ? a > b : a < b) return true;
    return (a == b || a_nan) && i < j;
  }
};

// heap[0] stands last of all; moves heap[at] down until that holds again.
template <class B>
void sift_down(int64_t* heap, int64_t size, int64_t at, const B& before) {
  for (;;) {
    int64_t child = 2 * at + 1;
    if (child >= size) return;
    if (child + 1 < size && before(heap[child], heap[child + 1])) child++;
    if (!before(heap[at], heap[child])) return;
    const int64_t t = heap[at];
    heap[at] = heap[child];
    heap[child] = t;
    at = child;
  }
}

// The k first of n in order: a heap of the best so far, then a heap sort.
template <class B>
void select_best(int64_t* heap, int64_t k, int64_t n, const B& before) {
  for (int64_t i = 0; i < k; i++) heap[i] = i;
  for (int64_t i = k / 2 - 1; i >= 0; i--) sift_down(heap, k, i, before);
  for (int64_t i = k; i < n; i++)
    if (before(i, heap[0])) {
      heap[0] = i;
      sift_down(heap, k, 0, before);
    }
  for (int64_t size = k - 1; size > 0; size--) {
    const int64_t t = heap[0];
    heap[0] = heap[size];
    heap[size] = t;
    sift_down(heap, size, 0, before);
  }
}

template <class T, bool Greatest>
INGOT_INLINE void top_k(const KernelCall* call, const TopKParams& p) {
  auto* heap = static_cast<int64_t*>(call->scratch);
  const int64_t n = p.axis.n, inner = p.axis.inner;
  for (int64_t unit = call->begin; unit < call->end; unit++) {
    const int64_t outer = unit / inner, column = unit % inner;
    const T* line = static_cast<const T*>(call->operand[0]) + outer * n * inner + column;
    select_best(heap, p.k, n, Before<T, Greatest>{line, inner});
    const int64_t to = outer * p.k * inner + column;
    for (int64_t i = 0; i < p.k; i++) {
      static_cast<T*>(call->operand[1])[to + i * inner] = line[heap[i] * inner];
      static_cast<int64_t*>(call->operand[2])[to + i * inner] = heap[i];
    }
  }
}

}  // namespace

extern "C" KernelStatus ingot_cumulate(const KernelCall* call) {
  const auto& p = *reinterpret_cast<const CumulateParams*>(call->param);
  with_number_type(p.axis.dtype, [&]<class T>() { cumulate<T>(call, p); });
  return kOk;
}

extern "C" KernelStatus ingot_arg(const KernelCall* call) {
  const auto& p = *reinterpret_cast<const ArgParams*>(call->param);
  with_number_type(p.axis.dtype,
                   [&]<class T>() { p.greatest ? arg_best<T, true>(call, p) : arg_best<T, false>(call, p); });
  return kOk;
}

extern "C" KernelStatus ingot_hardmax(const KernelCall* call) {
  const auto& p = *reinterpret_cast<const HardmaxParams*>(call->param);
  with_number_type(p.axis.dtype, [&]<class T>() { hardmax<T>(call, p); });
  return kOk;
}

extern "C" KernelStatus ingot_top_k(const KernelCall* call) {
  const auto& p = *reinterpret_cast<const TopKParams*>(call->param);
  with_number_type(p.axis.dtype, [&]<class T>() { p.greatest ? top_k<T, true>(call, p) : top_k<T, false>(call, p); });
  return kOk;
}

}  // namespace ingot::kernel
