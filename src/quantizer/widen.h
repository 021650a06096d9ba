// Models of 16-bit floats -> f32, which is what is quantized.
#pragma once
#include "graph/graph.h"

namespace ingot {

// In place; inputs and outputs keep their types, with a Cast inside. False, and nothing is changed, when no product
// works on 16-bit floats.
bool widen(Graph&);

}  // namespace ingot
