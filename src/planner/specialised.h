// Specialised kernels, and the list of a model's as text, so that it can travel beside the graph: one line a kernel,
//   kernel structure param,param,?,... expression
#pragma once
#include <string>
#include <vector>

#include "graph/expr.h"
#include "kernels/abi.h"

namespace ingot {

// A kernel compiled for some known parameters and one expression. It fits a step of the same kernel, expression and
// structure whose known parameters are equal; any other step runs the native build of the kernel.
struct SpecialisedKernel {
  std::string kernel;
  std::string expr;  // text, "" for none
  std::vector<int64_t> params;
  std::vector<uint8_t> known;  // one per param
  size_t structure = 0;
  KernelFn function = nullptr;
};

// What SpecialisedKernel::expr holds: the expression and the types of its operands and results, which decide the code
// as much. "" for none.
std::string kernel_expr(const Expr*);

std::string write_kernels(const std::vector<SpecialisedKernel>&);
// functions: as many as lines, in order.
std::vector<SpecialisedKernel> read_kernels(const std::string& text, const KernelFn* functions);
// The same, or nothing when this CPU does not run the level they were compiled for (first line: "isa <level>").
std::vector<SpecialisedKernel> usable_kernels(const std::string& text, const KernelFn* functions);

}  // namespace ingot
