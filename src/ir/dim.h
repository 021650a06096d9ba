// Reads what Dim::str writes: "batch", "2*seq + 1", "floor((seq)/(2))".
#pragma once
#include <optional>
#include <string_view>

#include "base/dim.h"

namespace ingot {

// Nothing when the text is not one dimension. Function-like parts stay opaque symbols, as Dim makes them.
std::optional<Dim> parse_dim(std::string_view text);

}  // namespace ingot
