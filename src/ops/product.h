// Matrix products as steps, for every operator that is one:  C[b] = epilogue( A[b] B[b] ).
//
// Kernel by type and operands, best first: ingot_gemm_f32 or, for bf16, ingot_gemm_bf16_* with the epilogue inside; one
// of them or ingot_matmul_any into a temporary and then an element-wise step, where an extra operand is broadcast in a
// way the epilogue cannot follow or the types differ.
#pragma once
#include <optional>

#include "base/target.h"
#include "kernels/gemm_bf16.h"
#include "kernels/hooks.h"
#include "ops/elementwise.h"

namespace ingot {

// Strides in elements; the batch strides are those of the dims in Product::batch.
struct Matrix {
  Operand operand;
  int64_t row = 0, col = 1;
  std::vector<int64_t> batch;
};

struct Product {
  DType dtype = DType::F32;    // of A and B; BF16 only where the target has a bf16_form
  bool f32_result = false;     // of bf16: C is f32, not bf16
  std::vector<int64_t> batch;  // C is dense: [batch..., m, n]
  int64_t m = 0, n = 0, k = 0;
  Matrix a, b;
  int64_t b_panel = 0;                     // B is packed in panels of so many columns (kernels/pack.h); 0: it is not
  std::optional<kernel::Bf16Form> b_form;  // the form of a packed B of bf16
  int64_t a_digits = 3;                    // see GemmParams
  int64_t b_type = 0, b_block = 0, b_zeros = 0, b_half = 0, b_zero = 0;  // narrow panels: see GemmParams
};

// The unit on which a target multiplies bf16 by bf16. Nothing: it has none, and operands are widened to f32.
std::optional<kernel::Bf16Form> bf16_form(const Target&);
// Attribute "packed_form" of a MatMul or Gemm of bf16: "bf16_dot" or "bf16_tiles".
std::string_view name(kernel::Bf16Form);

// How B is packed, from the attributes that planner/pack_weights.h leaves.
void read_packed(const Node&, Product&);
// Fails unless operand 1 of a node with those attributes is as large as a packed K x N matrix.
void check_packed(const InferContext&, int64_t k, int64_t n);

// `expr` over x0 = the product and x1, x2, ... = extras, broadcast to [batch..., m, n]; no results: none. Of bf16, x0
// is f32.
void emit_product(LowerContext&, const Product&, const Expr& expr, const std::vector<DenseOperand>& extras,
                  Operand out);

// How an operand broadcast to [rows..., n] is read at (row, column), where row counts through all of `rows`; nothing
// where that is not one stride.
std::optional<kernel::EpilogueOperand> epilogue_operand(const std::vector<int64_t>& from,
                                                        const std::vector<int64_t>& rows);

// Fails unless operand i, of this shape, broadcasts to a shape. Where sizes are not known yet the plan asks again.
void require_broadcast(const InferContext&, size_t i, const Shape& from, const Shape& to);
// The same for the operands of an epilogue, from `first` on: kernels read them over the result without another look.
void require_extras(const InferContext&, size_t first, const Shape& result);

// The result type of an epilogue over a product of type `dtype`, and its expression.
Expr parse_epilogue(const Node&, DType dtype, const std::vector<DType>& extras);

}  // namespace ingot
