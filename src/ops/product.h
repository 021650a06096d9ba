// Matrix products as steps, for every operator that is one:  C[b] = epilogue( A[b] B[b] ).
//
// Kernel by type and operands, best first: ingot_gemm_f32 with the epilogue inside; ingot_gemm_f32 or
// ingot_matmul_any into a temporary and then an element-wise step, where an extra operand is broadcast in a way the
// epilogue cannot follow or the types differ.
#pragma once
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
  DType dtype = DType::F32;
  std::vector<int64_t> batch;  // C is dense: [batch..., m, n]
  int64_t m = 0, n = 0, k = 0;
  Matrix a, b;
  int64_t b_panel = 0;   // B is packed in panels of so many columns (kernels/pack.h); 0: it is not
  int64_t a_digits = 3;  // see GemmParams
  int64_t b_type = 0, b_block = 0, b_zeros = 0, b_half = 0, b_zero = 0;  // narrow panels: see GemmParams
};

// How B is packed, from the attributes that planner/pack_weights.h leaves.
void read_packed(const Node&, Product&);
// Fails unless operand 1 of a node with those attributes is as large as a packed K x N matrix.
void check_packed(const InferContext&, int64_t k, int64_t n);

// `expr` over x0 = the product and x1, x2, ... = extras, broadcast to [batch..., m, n]; no results: none.
void emit_product(LowerContext&, const Product&, const Expr& expr, const std::vector<DenseOperand>& extras,
                  Operand out);

// How an operand broadcast to [rows..., n] is read at (row, column), where row counts through all of `rows`; nothing
// where that is not one stride.
std::optional<kernel::EpilogueOperand> epilogue_operand(const std::vector<int64_t>& from,
                                                        const std::vector<int64_t>& rows);

// The result type of an epilogue over a product of type `dtype`, and its expression.
Expr parse_epilogue(const Node&, DType dtype, const std::vector<DType>& extras);

}  // namespace ingot
