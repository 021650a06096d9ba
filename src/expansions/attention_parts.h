// What the attention operators share. Tensors are [batch, heads, sequence, dim].
#pragma once
#include "expansions/expander.h"

namespace ingot {

// [batch, seq, heads dim] <-> [batch, heads, seq, dim]
TensorId split_heads(Expander&, TensorId, int64_t heads);
TensorId merge_heads(Expander&, TensorId);

// Each head of x, which has fewer than Q, so often that there is one for every head of Q.
TensorId repeat_heads(Expander&, TensorId x, TensorId q);

// scale Q K^T. Half of the scale, as a factor, is on each side: products of 16-bit floats overflow later then.
// Attribute "scale"; 1 / sqrt(dim) without it.
TensorId scaled_scores(Expander&, TensorId q, TensorId k);

// The type attribute "softmax_precision" names, or `fallback`.
DType softmax_type(const Expander&, DType fallback);

}  // namespace ingot
