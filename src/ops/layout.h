// Strides, axes and values: what the operators that move data share.
//
// Moving is copying between two strided index spaces (kernels/move.h). An operator only says which space it reads and
// which it writes; whether that is a view, rows of memcpy or a blocked transpose is decided here, once for all.
#pragma once
#include <cstring>
#include <type_traits>
#include <vector>

#include "ops/op.h"

namespace ingot {

// Row-major strides in elements.
std::vector<int64_t> strides_of(const std::vector<int64_t>& dims);
int64_t product_of(const std::vector<int64_t>& dims, size_t from = 0, size_t to = SIZE_MAX);

// Bytes of an element that kernels can move; fails for strings and for types below a byte.
int64_t element_bytes(const LowerContext&, DType);

// dst[dst_offset + i . dst] = src[src_offset + i . src] for all i in dims; in elements.
struct StridedCopy {
  std::vector<int64_t> dims, src, dst;
  int64_t src_offset = 0, dst_offset = 0;
};
// The same copy with as few dims as possible. A rank-0 copy has one dim of 1.
StridedCopy simplified(const StridedCopy&);
// One step that does it; none when it is empty.
void emit_copy(LowerContext&, Operand src, Operand dst, int64_t element_bytes, const StridedCopy&);
// Result `out` is operand `in` moved so: a view where the bytes stay as they are, otherwise a step.
// The copy writes all of `out`.
void emit_move(LowerContext&, size_t out, size_t in, const StridedCopy&);

// The step's params from its kernel's Params struct.
template <class P>
std::vector<int64_t> params_of(const P& p) {
  static_assert(std::is_trivially_copyable_v<P> && sizeof(P) % sizeof(int64_t) == 0);
  std::vector<int64_t> words(sizeof(P) / sizeof(int64_t));
  std::memcpy(words.data(), &p, sizeof(P));
  return words;
}
// Units a thread takes at least, so that it has some 2 microseconds of work: moves 32 KB, or multiplies and adds
// 100,000 times.
inline int64_t grain_of(int64_t enough, int64_t of_unit) {
  return of_unit >= enough ? 1 : enough / (of_unit > 0 ? of_unit : 1);
}
inline int64_t grain_for(int64_t bytes_of_unit) { return grain_of(32 * 1024, bytes_of_unit); }
inline int64_t grain_for_products(int64_t multiply_adds_of_unit) { return grain_of(100'000, multiply_adds_of_unit); }

// Axes made non-negative; fails on one out of range or named twice.
std::vector<int64_t> normalized_axes(const InferContext&, const std::vector<Dim>& axes, int64_t rank);
std::vector<int64_t> normalized_axes(const std::vector<int64_t>& axes, int64_t rank);

// All as numbers, if they are.
std::optional<std::vector<int64_t>> as_numbers(const std::vector<Dim>&);

// Carries the known elements of operand `in` through a copy, when shapes are numbers and small.
void move_values(InferContext&, size_t out, size_t in, const StridedCopy&);

// Infers an operator whose result is its operand, elements in the same order, under another shape.
void set_reshaped(InferContext&, size_t out, size_t in, Shape);

// A shape of which only the rank is known; an error when there is no such rank.
Shape unknown_shape(const InferContext&, int64_t rank);

}  // namespace ingot
