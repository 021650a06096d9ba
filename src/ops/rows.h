// Memory that has room for more rows along an axis than there are: how keys and values of a decoder are kept between
// runs (runtime/state.h). Graphs get these operators when a state is bound to them, never before. `length` [1] says how
// many rows there are, and is known when a plan is made.
//   Rows(memory, length)                 the rows that are there: only its shape may be asked for
//   RowCount(x)                          [1]: x's size along the axis
//   Append(memory, length, new)          the same memory, with new behind the rows that are there
//   Extend(memory, length, all, value?)  the same memory, with value (or 0) in the rows from length to all
#pragma once
#include "ops/op.h"

namespace ingot {

// Thrown when a plan is made and the memory has not enough room.
struct RoomNeeded {
  TensorId memory;
  int64_t rows;
};

}  // namespace ingot
