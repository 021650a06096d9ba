// Writing by index into a tensor that already holds the data: out[at] = f(out[at], update), f being the update itself,
// a sum, a product, the greater or the lesser. Negative indices count from the back; one that is out of range stops the
// run. Updates of one place happen in their order, in one unit, so results do not depend on the threads.
#pragma once
#include <cstdint>

#include "kernels/abi.h"

namespace ingot {

enum ScatterReduction : int64_t {
  kScatterNone = 0,
  kScatterAdd = 1,
  kScatterMul = 2,
  kScatterMax = 3,
  kScatterMin = 4
};
inline constexpr int kMaxScatterRank = 12;

// ScatterElements:  out[.., indices[.., i_a, ..], ..] <- updates[.., i_a, ..].  Operands: indices, updates, out.
// A unit is one position of all dims of indices but the axis.
struct ScatterElementsParams {
  int64_t rank, dtype, size, index_size, reduction;
  int64_t axis;                                                    // which dim is indexed
  int64_t axis_dim;                                                // elements of out along it
  int64_t dims[kMaxScatterRank];                                   // of indices
  int64_t index_stride[kMaxScatterRank], stride[kMaxScatterRank];  // of indices and of out, in elements
};

// ScatterND:  out[indices[j, 0], ..., indices[j, depth-1], :] <- updates[j, :].  Operands: indices, updates, out.
// A unit is one of `pieces` parts of the row, of all tuples j.
struct ScatterNDParams {
  int64_t dtype, size, index_size, reduction;
  int64_t depth, count;                                    // of a tuple, and of tuples
  int64_t row, pieces;                                     // elements
  int64_t dims[kMaxScatterRank], stride[kMaxScatterRank];  // of out, for the tuple, in elements
};

// MaxUnpool:  out[c] = in[i] for the coordinates c that indices[i] has in a tensor of `dims`. Operands: in, indices,
// out. One unit does it all.
struct MaxUnpoolParams {
  int64_t rank, size, count;
  int64_t dims[kMaxScatterRank], stride[kMaxScatterRank];  // stride: of out, in elements
};

INGOT_KERNEL(ingot_max_unpool);
INGOT_KERNEL(ingot_scatter_elements);
INGOT_KERNEL(ingot_scatter_nd);

}  // namespace ingot
