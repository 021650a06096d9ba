// An expression as the native kernels interpret it.
#pragma once
#include <memory>

#include "graph/expr.h"
#include "kernels/interpreter.h"

namespace ingot {

// Finds the chunk functions for this CPU; the program owns what it points to.
std::shared_ptr<const ExprProgram> make_program(const Expr&);

}  // namespace ingot
