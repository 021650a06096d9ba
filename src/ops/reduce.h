// Reductions as steps, for operators that are made of them.
#pragma once
#include "kernels/reduce.h"
#include "ops/op.h"

namespace ingot {

// out = post( reduce over `axes` of pre(in) ), `in` dense with these dims; which pre a kind takes: reduce_has_pre.
void emit_reduce(LowerContext&, Operand in, const std::vector<int64_t>& dims, Operand out, DType,
                 const std::vector<int64_t>& axes, ReduceKind, ReducePre = kPreNone, ReducePost = kPostNone);
bool reduce_has_pre(ReduceKind, ReducePre);

}  // namespace ingot
