// Strings in operators that are otherwise about numbers.
#pragma once
#include "ops/host.h"

namespace ingot {

// Operand 0 to strings, or from strings to another type.
void cast_strings(HostContext&, DType to);
// Equal of two tensors of strings.
void equal_strings(HostContext&);

}  // namespace ingot
