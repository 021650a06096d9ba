// Values across the C interface (include/ingot/ingot.h): for the library that runs a model and for who calls it.
#pragma once
#include "graph/value.h"
#include "ingot/ingot.h"
#include "runtime/session.h"

namespace ingot {

// A tensor of numbers in the caller's memory, its size checked. `what` names it in errors: "input 0".
TensorView view_from_c(const ingot_tensor&, const std::string& what);
// Borrows the memory of tensors of numbers; strings are copied.
Value from_c(const ingot_tensor&, const std::string& what);

// Memory of its own, to be freed with release_c; nothing is left behind when it throws.
void to_c(const Value&, const std::string& what, ingot_tensor&);
void release_c(ingot_tensor&);

}  // namespace ingot
