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
// The kernels of one target.
struct TargetKernels {
  const Target* target;
  std::vector<SpecialisedKernel> kernels;
};
// A list for each target that a library was compiled for, each after a line "target <name> <number of kernels>".
std::string write_targets(const std::vector<TargetKernels>&);
// The last target of base/targets.inc among them that this CPU runs. functions: those of all lists, in order.
TargetKernels choose_target(const std::string& text, const KernelFn* functions);

}  // namespace ingot
