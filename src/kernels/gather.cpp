#include "kernels/gather.h"

#include "kernels/abi.h"
#include "kernels/element.h"

namespace ingot::kernel {
namespace {

// One element per index: no row to copy, so the element size must be in the code.
template <class T>
INGOT_INLINE KernelStatus gather_single(const KernelCall* call, const GatherParams& p) {
  const T* data = static_cast<const T*>(call->operand[0]);
  T* out = static_cast<T*>(call->operand[2]);
  int64_t outer = call->begin / p.count, j = call->begin % p.count;
  for (int64_t unit = call->begin; unit < call->end; unit++) {
    const int64_t i = wrap_index(index_at(call->operand[1], p.index_size, j), p.axis);
    if (i < 0) return kIndexOutOfRange;
    out[unit] = data[outer * p.axis + i];
    if (++j == p.count) j = 0, outer++;
  }
  return kOk;
}

INGOT_INLINE KernelStatus gather_rows(const KernelCall* call, const GatherParams& p) {
  const char* data = static_cast<const char*>(call->operand[0]);
  char* out = static_cast<char*>(call->operand[2]);
  int64_t outer = call->begin / p.count, j = call->begin % p.count;
  for (int64_t unit = call->begin; unit < call->end; unit++) {
    const int64_t i = wrap_index(index_at(call->operand[1], p.index_size, j), p.axis);
    if (i < 0) return kIndexOutOfRange;
    copy_bytes(out + unit * p.row, data + (outer * p.axis + i) * p.row, p.row);
    if (++j == p.count) j = 0, outer++;
  }
  return kOk;
}

template <class T>
INGOT_INLINE KernelStatus gather_elements(const KernelCall* call, const GatherElementsParams& p) {
  const T* data = static_cast<const T*>(call->operand[0]);
  T* out = static_cast<T*>(call->operand[2]);
  const int last = static_cast<int>(p.rank) - 1;
  const int64_t n = p.dims[last];
  const int64_t axis_stride = p.stride[p.axis], row_stride = p.axis == last ? 0 : p.stride[last];
  for (int64_t row = call->begin; row < call->end; row++) {
    int64_t base = 0, rest = row;
    for (int d = last - 1; d >= 0; d--) {
      if (d != p.axis) base += rest % p.dims[d] * p.stride[d];
      rest /= p.dims[d];
    }
    for (int64_t k = 0; k < n; k++) {
      const int64_t i = wrap_index(index_at(call->operand[1], p.index_size, row * n + k), p.axis_dim);
      if (i < 0) return kIndexOutOfRange;
      out[row * n + k] = data[base + k * row_stride + i * axis_stride];
    }
  }
  return kOk;
}

}  // namespace

extern "C" KernelStatus ingot_gather(const KernelCall* call) {
  const auto& p = *reinterpret_cast<const GatherParams*>(call->param);
  if (p.row != 1 && p.row != 2 && p.row != 4 && p.row != 8 && p.row != 16) return gather_rows(call, p);
  return with_element_size(p.row, [&]<class T>() { return gather_single<T>(call, p); });
}

extern "C" KernelStatus ingot_gather_elements(const KernelCall* call) {
  const auto& p = *reinterpret_cast<const GatherElementsParams*>(call->param);
  return with_element_size(p.size, [&]<class T>() { return gather_elements<T>(call, p); });
}

extern "C" KernelStatus ingot_gather_nd(const KernelCall* call) {
  const auto& p = *reinterpret_cast<const GatherNDParams*>(call->param);
  const char* data = static_cast<const char*>(call->operand[0]);
  char* out = static_cast<char*>(call->operand[2]);
  for (int64_t unit = call->begin; unit < call->end; unit++) {
    int64_t at = unit / p.count * p.batch;
    for (int64_t d = 0; d < p.depth; d++) {
      const int64_t i = wrap_index(index_at(call->operand[1], p.index_size, unit * p.depth + d), p.dims[d]);
      if (i < 0) return kIndexOutOfRange;
      at += i * p.stride[d];
    }
    copy_bytes(out + unit * p.row, data + at, p.row);
  }
  return kOk;
}

extern "C" KernelStatus ingot_reverse_sequence(const KernelCall* call) {
  const auto& p = *reinterpret_cast<const ReverseSequenceParams*>(call->param);
  const char* in = static_cast<const char*>(call->operand[0]);
  char* out = static_cast<char*>(call->operand[2]);
  for (int64_t unit = call->begin; unit < call->end; unit++) {
    int64_t at[2] = {unit / p.rows[1], unit % p.rows[1]};
    const int64_t length = static_cast<const int64_t*>(call->operand[1])[at[1 - p.time]];
    if (length < 0 || length > p.rows[p.time]) return kIndexOutOfRange;
    if (at[p.time] < length) at[p.time] = length - 1 - at[p.time];
    copy_bytes(out + unit * p.row, in + (at[0] * p.rows[1] + at[1]) * p.row, p.row);
  }
  return kOk;
}

}  // namespace ingot::kernel
