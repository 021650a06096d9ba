// Hooks: functions a kernel calls and the codegen defines from the fused element-wise expression of the step.
// In the native build of the same sources they interpret call->program instead (kernels/interpreter.cpp).
#pragma once
#include "kernels/abi.h"
#include "kernels/ewise.h"
#include "kernels/vec.h"

namespace ingot::kernel {

// Where one extra operand of an epilogue is read: base + row * row_stride + col * col_stride (elements);
// col_stride is 0 or 1. A bias over columns is {0, 1}, a residual {N, 1}, a scalar {0, 0}.
struct EpilogueOperand {
  int64_t row_stride, col_stride;
};
inline constexpr int kMaxEpilogueOperands = 6;

extern "C" {
// What becomes of `lanes` finished values of row `row`, columns [col, col + lanes) before they are stored.
// extra: the operand pointers of the epilogue; strides: one EpilogueOperand each.
VF ingot_hook_epilogue(VF acc, void* const* extra, const EpilogueOperand* strides, int64_t row, int64_t col,
                       int64_t lanes, const ExprProgram* program);

// The same for sums of integers, whose results have types of their own: stores them from element `at` of out on.
void ingot_hook_store(VI acc, void* out, int64_t at, void* const* extra, const EpilogueOperand* strides, int64_t row,
                      int64_t col, int64_t lanes, const ExprProgram* program);

// The same where results are bytes: gives them, not yet narrowed. Specialised builds only.
VI ingot_hook_bytes(VI acc, void* const* extra, const EpilogueOperand* strides, int64_t row, int64_t col, int64_t lanes,
                    const ExprProgram* program);

// Elements [i, i + lanes) of a row of an element-wise loop: loads, computes, stores. Specialised builds only.
void ingot_hook_ewise(void* const* operand, const int64_t* offset, const EwiseParams* p, int64_t i, int64_t lanes);
}

// Native builds only: the same by the interpreter, for n elements from `start` on.
void interpret_row(void* const* operand, const int64_t* offset, const EwiseParams& p, int64_t start, int64_t n,
                   const ExprProgram* program, void* scratch);
// The epilogue of a tile of sums in place, whose rows are `stride` floats apart, and of n sums of one row.
void interpret_tile(float* tile, int64_t rows, int64_t columns, int64_t stride, void* const* extra,
                    const EpilogueOperand* strides, int64_t row, int64_t col, const ExprProgram* program);
void interpret_sums(const int32_t* sums, int64_t n, void* out, int64_t at, void* const* extra,
                    const EpilogueOperand* strides, int64_t row, int64_t col, const ExprProgram* program);

}  // namespace ingot::kernel
