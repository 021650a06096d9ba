// The list of a model's specialised kernels as text, so that it can travel beside the graph: one line a kernel,
//   kernel structure param,param,?,... expression
#pragma once
#include <string>
#include <vector>

#include "graph/expr.h"
#include "runtime/session.h"

namespace ingot {

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
