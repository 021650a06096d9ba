// Element-wise operators: y[i] = f(x0[i], x1[i], ...) over broadcast operands, with f an Expr (graph/expr.h).
// The table in elementwise_table.cpp says which f an ONNX operator is; everything else about them is shared.
#pragma once
#include "kernels/ewise.h"
#include "ops/op.h"

namespace ingot {

// The expression of an element-wise node. x_i is the node's input i; an absent input has type Undefined and is never
// read. No results: these types have no expression (Cast from or to 8-bit and smaller floats and integers below a
// byte).
Expr elementwise_expr(const Node&, const std::vector<DType>& input_types);

// Result types from the expression, shapes by broadcasting all operands, integer values computed on dims.
void infer_elementwise(InferContext&);
// The same for operators whose result has the shape of the first operand, to which the others are broadcast.
void infer_like_first(InferContext&);

// One step that computes the expression over the node's operands.
void lower_elementwise(LowerContext&);

// The same over any operands: input i of the expression is inputs[i], broadcast to `dims`; results fill `dims`.
struct DenseOperand {
  Operand operand;
  std::vector<int64_t> dims;
};
Step& emit_elementwise(LowerContext&, const Expr&, const std::vector<DenseOperand>& inputs,
                       const std::vector<Operand>& results, const std::vector<int64_t>& dims);

// The expression over only those of its inputs that it reads, in order; `used` gets their old numbers.
Expr with_used_inputs(const Expr&, std::vector<size_t>& used);

// Strides of a dense tensor of shape `from` walked over the index space `to`: 0 where it is broadcast.
std::vector<int64_t> broadcast_strides(const std::vector<int64_t>& from, const std::vector<int64_t>& to);
// The loop over `dims` with the strides of its inputs and then its results: dims of one element dropped, neighbours
// that every operand walks as one merged. Fails on too many operands or dims.
EwiseParams ewise_loop(const LowerContext&, const std::vector<int64_t>& dims,
                       const std::vector<std::vector<int64_t>>& strides, size_t results);

// The expression on known integer values: each operand's elements as dims, already broadcast to `count` elements
// (empty: not known). Elements that cannot be told are Dim::unknown().
std::vector<Dim> eval_on_dims(const Expr&, int result, const std::vector<std::vector<Dim>>& operands, size_t count);

// Types of the results of a fused node: its attribute "dtypes", a list of names.
std::vector<DType> result_dtypes(const Node&);

}  // namespace ingot
