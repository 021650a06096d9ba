#include "kernels/scatter.h"

#include "kernels/abi.h"
#include "kernels/element.h"
#include "kernels/number.h"

namespace ingot::kernel {
namespace {

struct Replace {
  template <class T>
  static T apply(T, T update) {
    return update;
  }
};
template <int64_t Reduction>
struct Reduce {
  template <class T>
  static T apply(T old, T update) {
    const Wide<T> a = widen(old), b = widen(update);
    if constexpr (Reduction == kScatterAdd) return narrow<T>(static_cast<Wide<T>>(a + b));
    if constexpr (Reduction == kScatterMul) return narrow<T>(static_cast<Wide<T>>(a * b));
    if constexpr (Reduction == kScatterMax) return a != a || a > b ? old : update;  // NaN wins, as in numpy
    if constexpr (Reduction == kScatterMin) return a != a || a < b ? old : update;
  }
};

template <class T, class F>
INGOT_INLINE KernelStatus scatter_elements(const KernelCall* call, const ScatterElementsParams& p) {
  const T* updates = static_cast<const T*>(call->operand[1]);
  T* out = static_cast<T*>(call->operand[2]);
  const int64_t n = p.dims[p.axis], from = p.index_stride[p.axis], to = p.stride[p.axis];
  for (int64_t unit = call->begin; unit < call->end; unit++) {
    int64_t rest = unit, read = 0, write = 0;
    for (int64_t d = p.rank - 1; d >= 0; d--) {
      if (d == p.axis) continue;
      read += rest % p.dims[d] * p.index_stride[d];
      write += rest % p.dims[d] * p.stride[d];
      rest /= p.dims[d];
    }
    for (int64_t k = 0; k < n; k++, read += from) {
      const int64_t i = wrap_index(index_at(call->operand[0], p.index_size, read), p.axis_dim);
      if (i < 0) return kIndexOutOfRange;
      T& place = out[write + i * to];
      place = F::apply(place, updates[read]);
    }
  }
  return kOk;
}

template <class T, class F>
INGOT_INLINE KernelStatus scatter_nd(const KernelCall* call, const ScatterNDParams& p) {
  const T* updates = static_cast<const T*>(call->operand[1]);
  T* out = static_cast<T*>(call->operand[2]);
  const int64_t from = p.row * call->begin / p.pieces, to = p.row * call->end / p.pieces;
  for (int64_t j = 0; j < p.count; j++) {
    int64_t at = 0;
    for (int64_t d = 0; d < p.depth; d++) {
      const int64_t i = wrap_index(index_at(call->operand[0], p.index_size, j * p.depth + d), p.dims[d]);
      if (i < 0) return kIndexOutOfRange;
      at += i * p.stride[d];
    }
    for (int64_t c = from; c < to; c++) out[at + c] = F::apply(out[at + c], updates[j * p.row + c]);
  }
  return kOk;
}

// Calls work.template operator()<T, F>() with the element type and what to do with an update.
template <class P, class W>
INGOT_INLINE KernelStatus with_reduction(const P& p, W work) {
  if (p.reduction == kScatterNone)
    return with_element_size(p.size, [&]<class T>() { return work.template operator()<T, Replace>(); });
  return with_number_type(p.dtype, [&]<class T>() {
    switch (p.reduction) {
      case kScatterAdd:
        return work.template operator()<T, Reduce<kScatterAdd>>();
      case kScatterMul:
        return work.template operator()<T, Reduce<kScatterMul>>();
      case kScatterMax:
        return work.template operator()<T, Reduce<kScatterMax>>();
      default:
        return work.template operator()<T, Reduce<kScatterMin>>();
    }
  });
}

template <class T>
INGOT_INLINE KernelStatus max_unpool(const KernelCall* call, const MaxUnpoolParams& p) {
  const T* in = static_cast<const T*>(call->operand[0]);
  T* out = static_cast<T*>(call->operand[2]);
  for (int64_t i = 0; i < p.count; i++) {
    int64_t rest = static_cast<const int64_t*>(call->operand[1])[i], at = 0;
    if (rest < 0) return kIndexOutOfRange;
    for (int64_t d = p.rank - 1; d >= 0; d--) {
      at += rest % p.dims[d] * p.stride[d];
      rest /= p.dims[d];
    }
    if (rest != 0) return kIndexOutOfRange;
    out[at] = in[i];
  }
  return kOk;
}

}  // namespace

extern "C" KernelStatus ingot_max_unpool(const KernelCall* call) {
  const auto& p = *reinterpret_cast<const MaxUnpoolParams*>(call->param);
  return with_element_size(p.size, [&]<class T>() { return max_unpool<T>(call, p); });
}

extern "C" KernelStatus ingot_scatter_elements(const KernelCall* call) {
  const auto& p = *reinterpret_cast<const ScatterElementsParams*>(call->param);
  return with_reduction(p, [&]<class T, class F>() { return scatter_elements<T, F>(call, p); });
}

extern "C" KernelStatus ingot_scatter_nd(const KernelCall* call) {
  const auto& p = *reinterpret_cast<const ScatterNDParams*>(call->param);
  return with_reduction(p, [&]<class T, class F>() { return scatter_nd<T, F>(call, p); });
}

}  // namespace ingot::kernel
