// Tensors taken apart and put together by host operators, by bytes and so for every element type of whole bytes.
#pragma once
#include "graph/value.h"

namespace ingot {

// The slice of `count` from `first` along an axis.
ConstantPtr slice(const Constant&, int64_t axis, int64_t first, int64_t count);
// The element at `index` along an axis, without the axis.
ConstantPtr element(const Constant&, int64_t axis, int64_t index);
// Tensors joined along an axis; their other dims and types must agree.
ConstantPtr join(const std::vector<ConstantPtr>&, int64_t axis);
// Tensors of one shape joined along a new axis.
ConstantPtr stack(const std::vector<ConstantPtr>&, int64_t axis);

}  // namespace ingot
