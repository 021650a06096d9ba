// Copies between two strided index spaces: what Transpose, Slice, Split, Concat, Expand, Tile and others are made of.
//
//   for every i in [0, dims[0]) x ... x [0, dims[rank-1]):
//     dst[dst_offset + sum_k i_k * dst_stride[k]] = src[src_offset + sum_k i_k * src_stride[k]]
//
// Offsets and strides count elements of `size` bytes. A source stride of 0 repeats, a negative one reverses. The dims
// come simplified (ops/layout.h): none is 1, neighbours that can be one dim are one.
#pragma once
#include <cstdint>

#include "kernels/abi.h"

namespace ingot {

inline constexpr int kMaxCopyRank = 12;

// Operands: src, dst.
//
// ingot_copy: a unit is one of `pieces` parts of a row, a row being one walk along the last dim. The first parts of all
// rows come first: rows that share cache lines, as the channels of an image do, meet in the cache.
// ingot_transpose: the last dim has destination stride 1, dim `fast` has source stride 1. A unit is a strip of
// kTransposeStrip bytes of `fast` times the whole last dim; blocks of 16 bytes square are transposed in registers.
struct CopyParams {
  int64_t rank, size;
  int64_t pieces;  // ingot_copy
  int64_t fast;    // ingot_transpose
  int64_t stream;  // ingot_copy: the result is written to memory, not to caches; nobody here reads it
  int64_t src_offset, dst_offset;
  int64_t dims[kMaxCopyRank], src_stride[kMaxCopyRank], dst_stride[kMaxCopyRank];
};

inline constexpr int64_t kTransposeStrip = 64;

INGOT_KERNEL(ingot_copy);
INGOT_KERNEL(ingot_transpose);

}  // namespace ingot
