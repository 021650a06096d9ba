#include "ops/layout.h"

#include <algorithm>
#include <cstddef>

#include "base/checked.h"
#include "kernels/move.h"

namespace ingot {
namespace {

// Narrow elements that always travel together become one wide element: [n, 4] of f32 with rows kept whole is [n] of
// 16 bytes. Short rows are what makes copies slow.
void widen(StridedCopy& c, int64_t& size) {
  const size_t last = c.dims.size() - 1;
  const int64_t n = c.dims[last];
  if (last == 0 || c.src[last] != 1 || c.dst[last] != 1 || n * size > 16 || (n & (n - 1)) != 0) return;
  auto whole = [n](const std::vector<int64_t>& strides) {
    return std::all_of(strides.begin(), strides.end() - 1, [n](int64_t s) { return s % n == 0; });
  };
  if (!whole(c.src) || !whole(c.dst) || c.src_offset % n != 0 || c.dst_offset % n != 0) return;
  c.dims.pop_back(), c.src.pop_back(), c.dst.pop_back();
  for (size_t d = 0; d < c.dims.size(); d++) c.src[d] /= n, c.dst[d] /= n;
  c.src_offset /= n, c.dst_offset /= n;
  size *= n;
}

// The order in which elements are copied is free: a short innermost dim that is not one piece of memory changes places
// with the longest one, so that the innermost loop is long.
void lengthen_rows(StridedCopy& c) {
  const size_t last = c.dims.size() - 1;
  if (c.dims[last] >= 8 || (c.src[last] == 1 && c.dst[last] == 1)) return;
  const auto longest = static_cast<size_t>(std::max_element(c.dims.begin(), c.dims.end()) - c.dims.begin());
  std::swap(c.dims[longest], c.dims[last]);
  std::swap(c.src[longest], c.src[last]);
  std::swap(c.dst[longest], c.dst[last]);
}

CopyParams copy_params(const StridedCopy& c, int64_t size) {
  CopyParams p{};
  p.rank = static_cast<int64_t>(c.dims.size());
  p.size = size;
  p.pieces = 1;
  p.src_offset = c.src_offset;
  p.dst_offset = c.dst_offset;
  std::copy(c.dims.begin(), c.dims.end(), p.dims);
  std::copy(c.src.begin(), c.src.end(), p.src_stride);
  std::copy(c.dst.begin(), c.dst.end(), p.dst_stride);
  return p;
}

// The dim that the source has innermost while the destination has another, or -1: then blocks are transposed.
int64_t transposed_dim(const StridedCopy& c, int64_t size) {
  const size_t last = c.dims.size() - 1;
  if (size > 8 || c.dst[last] != 1 || c.src[last] == 1 || c.dims[last] < 16 / size) return -1;
  for (size_t d = 0; d < last; d++)
    if (c.src[d] == 1 && c.dims[d] >= 16 / size) return static_cast<int64_t>(d);
  return -1;
}

}  // namespace

std::vector<int64_t> strides_of(const std::vector<int64_t>& dims) {
  std::vector<int64_t> strides(dims.size());
  int64_t stride = 1;
  for (size_t i = dims.size(); i-- > 0;) {
    strides[i] = stride;
    stride = checked_mul(stride, std::max<int64_t>(dims[i], 1));
  }
  return strides;
}

int64_t product_of(const std::vector<int64_t>& dims, size_t from, size_t to) {
  int64_t n = 1;
  for (size_t i = from; i < std::min(to, dims.size()); i++) n = checked_mul(n, dims[i]);
  return n;
}

int64_t element_bytes(const LowerContext& ctx, DType dtype) {
  const int b = bits(dtype);
  if (b == 0 || b % 8 != 0) ctx.fail("there is no kernel that moves elements of type {}", name(dtype));
  return b / 8;
}

StridedCopy simplified(const StridedCopy& c) {
  StridedCopy r;
  r.src_offset = c.src_offset;
  r.dst_offset = c.dst_offset;
  for (size_t d = 0; d < c.dims.size(); d++) {
    if (c.dims[d] == 1) continue;
    if (!r.dims.empty() && r.src.back() == c.src[d] * c.dims[d] && r.dst.back() == c.dst[d] * c.dims[d]) {
      r.dims.back() *= c.dims[d];
      r.src.back() = c.src[d];
      r.dst.back() = c.dst[d];
    } else {
      r.dims.push_back(c.dims[d]);
      r.src.push_back(c.src[d]);
      r.dst.push_back(c.dst[d]);
    }
  }
  if (r.dims.empty()) r.dims = r.src = r.dst = {1};
  return r;
}

void emit_copy(LowerContext& ctx, Operand src, Operand dst, int64_t size, const StridedCopy& copy) {
  StridedCopy c = simplified(copy);
  const int64_t elements = product_of(c.dims);
  if (elements == 0) return;
  const int64_t bytes = checked_mul(elements, size);
  widen(c, size);
  if (c.dims.size() > kMaxCopyRank)
    ctx.fail("moves data along {} separate dims, more than the {} that are supported", c.dims.size(), kMaxCopyRank);
  const int64_t fast = transposed_dim(c, size);
  if (fast < 0) lengthen_rows(c);
  CopyParams p = copy_params(c, size);
  p.fast = fast;
  Step& step = ctx.step(p.fast >= 0 ? ingot_transpose_kernel : ingot_copy_kernel);
  step.operands = {src, dst};
  const int64_t inner = c.dims.back();
  if (p.fast >= 0) {
    const int64_t n = c.dims[static_cast<size_t>(p.fast)], strip = kTransposeStrip / size;
    step.units = product_of(c.dims) / inner / n * ((n + strip - 1) / strip);
  } else {
    p.pieces = std::max<int64_t>(1, std::min(inner, inner * size / (32 * 1024)));  // long rows are shared by threads
    step.units = product_of(c.dims) / inner * p.pieces;
    step.stream = offsetof(CopyParams, stream) / sizeof(int64_t);
  }
  step.grain = grain_for(bytes / step.units);
  step.params = params_of(p);
}

void emit_move(LowerContext& ctx, size_t out, size_t in, const StridedCopy& copy) {
  if (product_of(copy.dims) == 0) return;
  const StridedCopy c = simplified(copy);
  const bool same_bytes =
      c.dims.size() == 1 && (c.dims[0] == 1 || (c.src[0] == 1 && c.dst[0] == 1)) && c.dst_offset == 0;
  const int64_t size = element_bytes(ctx, ctx.in(in).dtype);
  if (same_bytes)
    ctx.view(out, in, c.src_offset * size);
  else
    emit_copy(ctx, ctx.input(in), ctx.output(out), size, c);
}

std::vector<int64_t> normalized_axes(const InferContext& ctx, const std::vector<Dim>& axes, int64_t rank) {
  std::vector<int64_t> out;
  for (const Dim& a : axes) {
    if (!a.is_const()) throw RankUnknown{};
    const int64_t axis = ctx.axis(a.value(), rank);
    ctx.require(std::find(out.begin(), out.end(), axis) == out.end(), "axis {} is named twice", axis);
    out.push_back(axis);
  }
  return out;
}

std::vector<int64_t> normalized_axes(const std::vector<int64_t>& axes, int64_t rank) {
  std::vector<int64_t> out(axes);
  for (int64_t& a : out)
    if (a < 0) a += rank;
  return out;
}

std::optional<std::vector<int64_t>> as_numbers(const std::vector<Dim>& dims) {
  if (!is_const(dims)) return std::nullopt;
  return numbers(dims);
}

void move_values(InferContext& ctx, size_t out, size_t in, const StridedCopy& c) {
  const auto from = ctx.known_values(in);
  if (!from) return;
  const int64_t n = product_of(c.dims);
  if (n > static_cast<int64_t>(kMaxValues)) return;
  std::vector<Dim> to(static_cast<size_t>(n));
  for (int64_t i = 0; i < n; i++) {
    int64_t src = c.src_offset, dst = c.dst_offset, rest = i;
    for (size_t d = c.dims.size(); d-- > 0; rest /= c.dims[d]) {
      src += rest % c.dims[d] * c.src[d];
      dst += rest % c.dims[d] * c.dst[d];
    }
    to[static_cast<size_t>(dst)] = (*from)[static_cast<size_t>(src)];
  }
  ctx.set_values(out, std::move(to));
}

void set_reshaped(InferContext& ctx, size_t out, size_t in, Shape shape) {
  ctx.set(out, ctx.dtype(in), std::move(shape));
  if (auto values = ctx.known_values(in)) ctx.set_values(out, std::move(*values));
}

Shape unknown_shape(const InferContext& ctx, int64_t rank) {
  constexpr int64_t kMostDims = 64;
  ctx.require(rank >= 0 && rank <= kMostDims, "a result of rank {}", rank);
  return Shape(static_cast<size_t>(rank), Dim::unknown());
}

}  // namespace ingot
