// Scalars, lists and inline data of the IR's yaml -> attributes and constants. Private to the reader.
#pragma once
#include <optional>
#include <string>

#include "graph/graph.h"
#include "ir/tree.h"

namespace ingot {

// "text", or {bytes: "hex"} for what is not UTF-8.
std::string ir_string(const IrTree&);
// A float always has a point, an exponent or is .inf, -.inf, .nan; nothing for other text.
template <class T>
std::optional<T> ir_float(const std::string& text);

// int, float, string, and lists of them; {ints: []} and so on for empty lists. Not tensors and graphs.
Attribute ir_attribute(const IrTree&);

// The elements of a small constant, written in place.
ConstantPtr ir_inline_constant(const IrTree& values, DType, std::vector<int64_t> dims);

}  // namespace ingot
