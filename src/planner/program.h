// An expression as the native kernels interpret it.
#pragma once
#include <memory>

#include "base/target.h"
#include "graph/expr.h"
#include "kernels/interpreter.h"

namespace ingot {

// For the native kernels of the target; the program owns what it points to.
std::shared_ptr<const ExprProgram> make_program(const Expr&, const Target&);

}  // namespace ingot
