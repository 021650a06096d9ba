// Reading by index. Negative indices count from the back; one that is out of range stops the run.
#pragma once
#include <cstdint>

#include "kernels/abi.h"

namespace ingot {

inline constexpr int kMaxGatherRank = 12;

// Gather:  out[o, j, :] = data[o, indices[j], :].  Operands: data, indices, out. A unit is one (o, j).
struct GatherParams {
  int64_t count;       // of indices
  int64_t axis;        // elements of data along the axis
  int64_t row;         // bytes of data[o, i, :]
  int64_t index_size;  // bytes of an index: 4 or 8
};

// GatherElements:  out[.., i_a, ..] = data[.., indices[.., i_a, ..], ..].  Operands: data, indices, out.
// A unit is a row of the last dim of out; strides are of data, in elements.
struct GatherElementsParams {
  int64_t rank, size, index_size;
  int64_t axis;      // which dim is indexed
  int64_t axis_dim;  // elements of data along it
  int64_t dims[kMaxGatherRank], stride[kMaxGatherRank];
};

// GatherND:  out[b, j, :] = data[b, indices[b, j, 0], ..., indices[b, j, depth-1], :].
// Operands: data, indices, out. A unit is one (b, j).
struct GatherNDParams {
  int64_t depth, index_size;
  int64_t count;                   // of index tuples in a batch
  int64_t batch;                   // bytes of data[b]
  int64_t row;                     // bytes of what a tuple names
  int64_t dims[kMaxGatherRank];    // of data, indexed by the tuple
  int64_t stride[kMaxGatherRank];  // bytes
};

// ReverseSequence:  the first lengths[b] rows of batch b in reverse, the others as they are.
// Operands: in, lengths (int64), out. A unit is a row [i, j, :], the batch being the axis that is not `time`.
struct ReverseSequenceParams {
  int64_t rows[2];  // dims 0 and 1
  int64_t row;      // bytes
  int64_t time;     // 0 or 1
};

INGOT_KERNEL(ingot_gather);
INGOT_KERNEL(ingot_gather_elements);
INGOT_KERNEL(ingot_gather_nd);
INGOT_KERNEL(ingot_reverse_sequence);

}  // namespace ingot
